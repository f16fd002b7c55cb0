"""Whether a host is this machine itself, as far as its name or address tells. Pure."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address

__all__ = ('is_loopback',)


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
