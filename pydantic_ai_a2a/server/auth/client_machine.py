"""The machine that a request comes from, by the address of the connection and by the headers of proxies."""

from __future__ import annotations

from ...public_hosts import is_loopback
from .request_info import RequestInfo

PROXY_HEADERS = frozenset(
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


def other_machine(request: RequestInfo) -> str | None:
    """Return the origin of a request from another machine; None if the origin is this machine or unknown.

    A request that came through a proxy is from another machine. The address of the proxy itself does not count.
    """
    for name, _ in request.headers:
        if name in PROXY_HEADERS:
            return 'a machine behind a proxy'
    address = request.address
    return address if address is not None and is_loopback(address) is False else None
