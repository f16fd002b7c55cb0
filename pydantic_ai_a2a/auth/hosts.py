"""Whether a host is this machine itself, and a request comes from it, as far as that can be told. Pure."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address

from starlette.types import Scope

__all__ = ('OF_PROXIES', 'is_loopback', 'remote')

OF_PROXIES = frozenset(
    {
        b'forwarded',
        b'via',
        b'x-forwarded-by',
        b'x-forwarded-for',
        b'x-forwarded-host',
        b'x-forwarded-port',
        b'x-forwarded-prefix',
        b'x-forwarded-proto',
        b'x-forwarded-scheme',
        b'x-forwarded-server',
        b'x-real-ip',
    }
)
"""Headers that a proxy adds: who sends a request through it is somebody else than the client of the connection."""


def is_loopback(host: str) -> bool | None:
    """Whether only this machine is reached by a host's name or address; None for other names, which do not tell."""
    if host == 'localhost':
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped  # how a socket for both families names a client of IPv4
    return address.is_loopback


def remote(scope: Scope) -> str | None:
    """Where a request comes from that was not sent on this machine; None if it was, or if that cannot be told.

    What a proxy passes on is from elsewhere, whatever its address is: on this machine, it is that of the machine.
    """
    for name, _ in scope['headers']:
        if name in OF_PROXIES:
            return 'somebody behind a proxy'
    client = scope.get('client')
    return client[0] if client is not None and is_loopback(client[0]) is False else None
