"""JSON Web Key Sets (RFC 7517): the usable public keys of a set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, TypeAlias, cast

from jwt import PyJWK
from jwt.exceptions import PyJWTError

from .key_pairs import fits

_MAX_KEYS = 100

KeyTable: TypeAlias = Mapping[tuple[str | None, str], PyJWK]
"""Public keys by id and algorithm."""


def read_key_set(document: Mapping[str, Any], algorithms: Sequence[str]) -> KeyTable:
    """Return the usable keys of a JSON Web Key Set (RFC 7517) by id and algorithm.

    The only key of an algorithm has a second entry without id. Keys that are shared, private, too weak, or for another
    use are ignored.

    Raises:
        ValueError: The document is no key set.
    """
    keys: object = document.get('keys')
    if not isinstance(keys, list):
        raise ValueError('the document has no keys')
    table: dict[tuple[str | None, str], PyJWK] = {}
    usable: dict[str, list[PyJWK]] = {}
    for entry in islice(cast('list[object]', keys), _MAX_KEYS):
        if not isinstance(entry, dict):
            continue
        data = cast('dict[str, Any]', entry)
        for algorithm in algorithms:
            if (key := read_key(data, algorithm)) is not None:
                usable.setdefault(algorithm, []).append(key)
                table.setdefault((key.key_id, algorithm), key)
    for algorithm, fitting in usable.items():
        table.pop((None, algorithm), None)
        if len(fitting) == 1:
            table[None, algorithm] = fitting[0]
    return table


def read_key(data: Mapping[str, Any], algorithm: str) -> PyJWK | None:
    """Return the public key for an algorithm; None if the key cannot be used for the algorithm."""
    if (
        not fits(data, algorithm)
        or data.get('use', 'sig') != 'sig'
        or data.get('alg', algorithm) != algorithm
        or 'd' in data
    ):
        return None
    if not isinstance(data.get('kid'), str | None):
        return None
    try:
        key = PyJWK(dict(data), algorithm)
    except PyJWTError:
        return None
    return key if key.Algorithm.check_key_length(key.key) is None else None
