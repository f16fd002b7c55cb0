"""The scopes that each operation needs."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from ...wire.protocol.operations import OPERATIONS

_SCOPE = re.compile(r'[!#-\[\]-~]+')
"""A scope-token of RFC 6749 §3.3, which can stand in a header."""
_ALL = '*'


def needed_scopes(scopes: Mapping[str, str | Collection[str]]) -> dict[str, frozenset[str]]:
    """Return the scopes of each operation. A caller needs all scopes of an operation.

    Args:
        scopes: Scopes by the name of an operation in A2A 1.0. `*` stands for the other operations.

    Raises:
        ValueError: An operation does not exist, or a scope has illegal characters.
    """
    unknown = scopes.keys() - OPERATIONS.keys() - {_ALL}
    if unknown:
        raise ValueError(
            f'Access.scopes has {min(unknown)!r}, which is not an operation: use {", ".join(OPERATIONS)} or *.'
        )
    configured = {name: _read(value) for name, value in scopes.items()}
    rest = configured.get(_ALL, frozenset[str]())
    return {
        name: configured.get(name, configured.get(operation.scopes_of, rest)) for name, operation in OPERATIONS.items()
    }


def _read(value: str | Collection[str]) -> frozenset[str]:
    names = frozenset([value] if isinstance(value, str) else value)
    for name in names:
        if _SCOPE.fullmatch(name) is None:
            raise ValueError(
                f'{name!r} is not a valid scope: use printable ASCII without spaces, quotes and backslashes.'
            )
    return names
