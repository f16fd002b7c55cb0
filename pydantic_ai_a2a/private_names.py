"""Names of hosts that are never public, whatever they resolve to: for URLs of files and of webhooks."""

from __future__ import annotations

__all__ = ('is_private_name',)

_PRIVATE = ('localhost', 'local', 'internal', 'home.arpa')
"""Names that never are a public host's, as are those under them."""


def is_private_name(host: str) -> bool:
    """Return whether a name belongs to a private network. Case and final dots do not matter."""
    name = host.rstrip('.').lower()
    return any(name == private or name.endswith(f'.{private}') for private in _PRIVATE)
