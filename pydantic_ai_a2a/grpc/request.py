"""The values of a gRPC call that admission reads: metadata, address and certificate of the client."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from grpc import aio

from ..auth.request import RequestInfo

__all__ = ('request_info',)

_NAMES = ('x509_subject_alternative_name', 'x509_common_name')


def request_info(context: aio.ServicerContext[Any, Any], correlation_id: str) -> RequestInfo:
    """Return the values of a call for admission. The metadata of the call are its headers."""
    metadata: Any = context.invocation_metadata() or ()
    return RequestInfo(
        correlation_id=correlation_id,
        headers=[(key.encode(), value if isinstance(value, bytes) else value.encode()) for key, value in metadata],
        address=_address(context.peer()),
        tls_names=_names(context.auth_context()),
    )


def _address(peer: str) -> str | None:
    """Return the address in the name of a peer, such as `ipv6:%5B::1%5D:50100`; None for other transports than IP."""
    kind, _, place = peer.partition(':')
    return unquote(place).rpartition(':')[0].strip('[]') if kind in ('ipv4', 'ipv6') else None


def _names(facts: Any) -> tuple[str, ...]:
    """Return the names in the verified certificate of the client."""
    return tuple(dict.fromkeys(value.decode() for name in _NAMES for value in facts.get(name, ())))
