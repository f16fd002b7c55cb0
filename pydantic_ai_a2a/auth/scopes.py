"""Which scopes an operation needs. Knows the table of operations; neither callers' credentials nor requests."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from ..protocol.operations import OPERATIONS

__all__ = ('needed_scopes',)

_SCOPE = re.compile(r'[!#-\[\]-~]+')
"""A scope-token of RFC 6749 §3.3, which can stand in a header."""
_ALL = '*'


def needed_scopes(scopes: Mapping[str, str | Collection[str]]) -> dict[str, frozenset[str]]:
    """The scopes that each operation needs, all of them.

    Args:
        scopes: By the name of an operation in A2A 1.0; `*` is for what is not named.

    Raises:
        ValueError: There is no such operation, or a scope is none.
    """
    unknown = scopes.keys() - OPERATIONS.keys() - {_ALL}
    if unknown:
        raise ValueError(f'scopes= has {min(unknown)!r}, which is no operation: {", ".join(OPERATIONS)}, or *.')
    given = {name: _read(value) for name, value in scopes.items()}
    rest = given.get(_ALL, frozenset[str]())
    return {name: given.get(name, given.get(operation.scopes_of, rest)) for name, operation in OPERATIONS.items()}


def _read(value: str | Collection[str]) -> frozenset[str]:
    names = frozenset([value] if isinstance(value, str) else value)
    for name in names:
        if _SCOPE.fullmatch(name) is None:
            raise ValueError(f'{name!r} is no scope: it needs printable ASCII without spaces, quotes and backslashes.')
    return names
