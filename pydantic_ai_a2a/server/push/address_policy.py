"""Rules for the URLs and addresses that the server calls for a client.

A client chooses the URL of a webhook, and the server calls it from its own network. So hosts that only the server can
reach are refused. A name may resolve to another address each time. For that reason the addresses are checked before
each call, and the server connects to a checked address.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import httpx2

from ...public_hosts import is_public, is_public_host, literal

_NAME = re.compile(r'(?=.{1,254}\Z)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*\.?')
"""A host name that resolvers accept, in ASCII and lower case (RFC 1035 §2.3.4)."""
_NEVER_IN_URL = re.compile(r'[\x00-\x20\x7f-\x9f\\]|%00')
"""Control characters and white space; backslashes, which some URL parsers read as slashes; and the encoded NUL."""


class AddressRefused(Exception):
    """The server does not call this URL; the text has the reason, without the URL."""


class PrivateHost(AddressRefused):
    """The host is not public."""


class AddressPolicy:
    """The operator's rules for hosts of webhooks.

    Args:
        private_hosts: Names and addresses that may be private, and called without TLS.
    """

    def __init__(self, private_hosts: Iterable[str]) -> None:
        self._private = frozenset(map(_key, private_hosts))

    def check_url(self, url: str) -> httpx2.URL:
        """Return the URL for the request. Refuse a URL that can never be called; names are not resolved.

        Raises:
            AddressRefused: The text completes "the URL ...".
        """
        if _NEVER_IN_URL.search(url):
            raise AddressRefused('must not hold white space, control characters, backslashes or %00')
        try:
            parsed = httpx2.URL(url)
            host = host_of(parsed)
        except (httpx2.InvalidURL, UnicodeError, ValueError):
            raise AddressRefused('is not a valid URL') from None
        if parsed.scheme not in ('http', 'https') or not host:
            raise AddressRefused('must begin with https:// and a host')
        if ':' not in host and not _NAME.fullmatch(host):
            raise AddressRefused('must have a host whose name can be looked up, without percent-encoding')
        if parsed.port is not None and not 0 < parsed.port < 65_536:
            raise AddressRefused('must have a port from 1 to 65535')
        if '@' in _authority(url):
            raise AddressRefused('must not hold credentials; use authentication')
        if not self._is_named(host):
            _check_public(parsed.scheme, host)
        return parsed.copy_with(fragment=None)

    def check_addresses(self, url: httpx2.URL, addresses: Iterable[str]) -> None:
        """Refuse a host with a private address.

        Raises:
            AddressRefused: The text completes "the host ...".
        """
        if not self._is_named(host_of(url)) and not all(map(is_public, addresses)):
            raise AddressRefused('has an address that is not public')

    def _is_named(self, host: str) -> bool:
        return _key(host) in self._private


def _authority(url: str) -> str:
    """Return the host and port of a URL, with credentials before them, even empty ones."""
    return re.split('[/?#]', url.partition('://')[2], maxsplit=1)[0]


def _check_public(scheme: str, host: str) -> None:
    if scheme != 'https':
        raise AddressRefused('must begin with https://')
    if not is_public_host(host):
        private = 'a host of a private network' if literal(host) is None else 'an address that is not public'
        raise PrivateHost(f'must not name {private}')


def host_of(url: httpx2.URL) -> str:
    """Return the host for the resolver: ASCII, and an IPv6 address without brackets."""
    return url.raw_host.decode('ascii').strip('[]')


def _key(host: str) -> str:
    """Return a host in the form for comparison."""
    return host.strip('[]').rstrip('.').lower()
