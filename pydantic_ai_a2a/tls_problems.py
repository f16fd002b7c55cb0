"""The reason why the TLS of a server is not accepted, in words with a remedy."""

from __future__ import annotations

import ssl

from .base_exceptions import causes

_UNTRUSTED = (18, 19, 20, 21)
"""OpenSSL's codes of certificates whose authority is not trusted, also of those that have signed themselves."""
_TRUST = 'Trust its authority: the environment variable SSL_CERT_FILE names a file of authorities.'
_OTHER = 'The server needs a certificate that is valid now, and for this host.'
_PLAIN = frozenset({'WRONG_VERSION_NUMBER', 'RECORD_LAYER_FAILURE', 'HTTP_REQUEST', 'PACKET_LENGTH_TOO_LONG'})
"""OpenSSL's reasons for an answer that is not TLS."""


def tls_problem(error: BaseException) -> str:
    """Return the problem of TLS among the causes of an error, as a sentence about a server; empty for none."""
    cause = next((cause for cause in causes(error, contexts=True) if isinstance(cause, ssl.SSLError)), None)
    if cause is None:
        return ''
    if isinstance(cause, ssl.SSLCertVerificationError):
        remedy = _TRUST if cause.verify_code in _UNTRUSTED else _OTHER
        return f'its TLS certificate is not accepted: {cause.verify_message.rstrip(".")}. {remedy}'
    if cause.reason in _PLAIN:
        return 'it does not speak TLS. If the server has no certificate, write http:// in the place of https://.'
    return f'its TLS is not accepted ({cause.reason}).'
