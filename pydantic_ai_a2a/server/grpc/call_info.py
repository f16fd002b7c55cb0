"""The values of a gRPC call that admission reads: metadata, address and certificate of the client."""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

from cryptography import x509
from cryptography.x509.oid import NameOID
from grpc import aio

from ..auth.request_info import RequestInfo

logger = logging.getLogger('pydantic_ai_a2a')

_KINDS: dict[type[x509.GeneralName], str] = {
    x509.DNSName: 'DNS',
    x509.UniformResourceIdentifier: 'URI',
    x509.IPAddress: 'IP',
    x509.RFC822Name: 'email',
}
"""The kinds of alternative names that callers can have."""


def request_info(context: aio.ServicerContext[Any, Any], correlation_id: str, **more: Any) -> RequestInfo:
    """Return the values of a call for admission. The metadata of the call are its headers."""
    metadata: Any = context.invocation_metadata() or ()
    return RequestInfo(
        correlation_id=correlation_id,
        headers=[(key.encode(), value if isinstance(value, bytes) else value.encode()) for key, value in metadata],
        address=_address(context.peer()),
        tls_names=_names(next(iter(context.auth_context().get('x509_pem_cert', ())), b'')),
        **more,
    )


def _address(peer: str) -> str | None:
    """Return the address in the name of a peer, such as `ipv6:%5B::1%5D:50100`; None for other transports than IP."""
    kind, _, place = peer.partition(':')
    return unquote(place).rpartition(':')[0].strip('[]') if kind in ('ipv4', 'ipv6') else None


@lru_cache(maxsize=256)
def _names(pem: bytes) -> tuple[str, ...]:
    """Return the names in the verified certificate of a client, each after its kind; none without a certificate.

    gRPC itself mixes the kinds, and cuts a name at a NUL.
    """
    if not pem:
        return ()
    names = _valid_names(x509.load_pem_x509_certificate(pem))
    if any('\0' in name for name in names):
        logger.warning('The certificate of a client has a NUL in a name, and counts as no certificate.')
        return ()
    return tuple(names)


def _valid_names(certificate: x509.Certificate) -> list[str]:
    """Return the alternative names of a certificate. The common name counts only without this extension."""
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        common = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        return [f'CN:{attribute.value}' for attribute in common]
    return [f'{_KINDS[type(name)]}:{name.value}' for name in extension.value if type(name) in _KINDS]
