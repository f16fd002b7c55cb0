"""Recognises this machine: in the names of hosts, and as the origin of requests."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address

from .request import RequestInfo

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
"""Headers that proxies add. The sender of such a request is not the client of the connection."""


def is_loopback(host: str) -> bool | None:
    """Return whether a host is this machine itself; None for names that may be of any machine."""
    if host == 'localhost':
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped  # a dual-stack socket shows IPv4 clients so
    return address.is_loopback


def remote(request: RequestInfo) -> str | None:
    """Return the origin of a request from another machine; None if the origin is this machine or unknown.

    A request that came through a proxy is from another machine. The address of the proxy itself does not count.
    """
    for name, _ in request.headers:
        if name in OF_PROXIES:
            return 'a machine behind a proxy'
    address = request.address
    return address if address is not None and is_loopback(address) is False else None
