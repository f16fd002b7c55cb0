"""Certificates for a server and its clients, signed by an authority of the tests."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

__all__ = ('Authority', 'Pair')


@dataclass(frozen=True)
class Pair:
    """Files of a certificate and its key."""

    certificate: Path
    key: Path

    def context(self) -> ssl.SSLContext:
        """The context of a server."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        return context


class Authority:
    """Signs certificates, which it writes into a folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        basic = x509.BasicConstraints(ca=True, path_length=None)
        identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        usage = dict.fromkeys(USAGES, False) | {'key_cert_sign': True}
        certificate = (
            self._builder(self._name, self._key)
            .add_extension(basic, critical=True)
            .add_extension(identifier, critical=False)
            .add_extension(x509.KeyUsage(**usage), critical=True)
        )
        self.file = folder / f'{name}.pem'
        self.file.write_bytes(certificate.sign(self._key, SHA256()).public_bytes(Encoding.PEM))

    def sign(
        self,
        name: str,
        *alternatives: x509.GeneralName,
        common_name: str | None = None,
        until: timedelta = timedelta(days=1),
    ) -> Pair:
        """A certificate with a common name, by default the name of its file, and alternative names."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name or name)])
        # Python 3.13 refuses certificates without this identifier.
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = self._builder(subject, key, until).add_extension(issuer, critical=False)
        if alternatives:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        pair = Pair(self._folder / f'{name}.crt', self._folder / f'{name}.key')
        pair.certificate.write_bytes(builder.sign(self._key, SHA256()).public_bytes(Encoding.PEM))
        pair.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return pair

    def _builder(
        self, name: x509.Name, key: ec.EllipticCurvePrivateKey, until: timedelta = timedelta(days=1)
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + until)
        )


USAGES = (
    'digital_signature',
    'content_commitment',
    'key_encipherment',
    'data_encipherment',
    'key_agreement',
    'key_cert_sign',
    'crl_sign',
    'encipher_only',
    'decipher_only',
)
"""The uses that a certificate of an authority allows, or not."""

LOCAL = (x509.DNSName('localhost'), x509.IPAddress(ip_address('127.0.0.1')))
"""The names of servers on this machine."""
