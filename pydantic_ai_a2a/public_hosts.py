"""The hosts that are never public, and this machine itself, by names and addresses."""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

_PRIVATE = ('localhost', 'local', 'internal', 'home.arpa')
"""Domains whose hosts are never public."""
_AZURE = IPv4Address('168.63.129.16')
"""Azure's platform service, whose address is in a public range."""
_TRANSLATED = IPv6Network('64:ff9b::/96')
"""NAT64 (RFC 6052): in networks without IPv4, names of IPv4-only hosts resolve to these addresses."""
_NEVER_NEEDED = (  # some Python versions treat these networks as public
    IPv4Network('192.0.0.0/24'),  # assignments to protocols (RFC 6890)
    IPv6Network('64:ff9b:1::/48'),  # NAT64 with prefixes of one's own (RFC 8215)
    IPv6Network('2001::/23'),  # Teredo, ORCHID and other assignments to protocols
    IPv6Network('2002::/16'),  # 6to4
    IPv6Network('3fff::/20'),  # documentation (RFC 9637)
    IPv6Network('5f00::/16'),  # segment routing (RFC 9602)
    IPv6Network('100:0:0:1::/64'),  # dummy prefix (RFC 9780)
)
_ISATAP = (b'\x00\x00\x5e\xfe', b'\x02\x00\x5e\xfe')


def is_public_host(host: str) -> bool:
    """Return True for a name or an address that may belong to a public host. Names are not resolved."""
    name = host.rstrip('.').lower()
    if any(name == private or name.endswith(f'.{private}') for private in _PRIVATE):
        return False
    address = literal(host)
    return address is None or is_public(address)


def is_public(address: str) -> bool:
    """Return True for the address of a host of the public internet, unless the address stands for a private address."""
    try:
        ip = ip_address(address)
    except ValueError:
        return False
    if any(ip in network for network in _NEVER_NEEDED):
        return False
    if isinstance(ip, IPv4Address):
        return _is_global(ip) and ip != _AZURE
    if ip.scope_id is not None or ip.packed[8:12] in _ISATAP:
        return False
    if ip in _TRANSLATED:
        return is_public(str(IPv4Address(ip.packed[12:])))
    return _is_global(ip) and not ip.is_site_local and ip.ipv4_mapped is None


def _is_global(ip: IPv4Address | IPv6Address) -> bool:
    return ip.is_global and not (ip.is_multicast or ip.is_reserved or ip.is_unspecified)


def literal(host: str) -> str | None:
    """Return the address in a host, including C libraries' short forms (`127.1`); None for a name."""
    try:
        return str(ip_address(host))
    except ValueError:
        pass  # a name, perhaps
    try:
        return socket.inet_ntoa(socket.inet_aton(host.rstrip('.')))
    except (OSError, UnicodeError):
        return None


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


def is_local(host: str) -> bool:
    """Return True for a host that each machine takes for itself: `*.localhost`, a loopback address, or `0.0.0.0`."""
    try:
        address = ip_address(host)
    except ValueError:
        return host == 'localhost' or host.endswith('.localhost')
    return address.is_loopback or address.is_unspecified
