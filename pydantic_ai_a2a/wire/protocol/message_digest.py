"""The digest of a message, by which a repeated message is known."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from .stored_values import wire_parts

_SAME = ('role', 'context_id', 'task_id', 'reference_task_ids', 'metadata', 'extensions')
"""Members of a message in the digest, besides the parts."""
_PLAIN = ['user', *[None] * 8]
"""The JSON of common members and request values, written once."""
_PLAIN_JSON = json.dumps(_PLAIN).encode()


def digest(message: Mapping[str, Any], parts: bytes, *rest: object) -> bytes:
    """Return a digest of a message. A repeated message has the same id and the same digest.

    Args:
        message: The message of the client.
        parts: The parts, from `dump_parts`.
        rest: Further values of the request, as JSON values. Empty values are the same as None.
    """
    for part in message['parts']:
        if 'data' in part or 'metadata' in part:  # clients may send the keys in another order
            parts = json.dumps(wire_parts(message['parts']), sort_keys=True).encode()
            break
    members: list[object] = []
    for name in _SAME:
        members += ((message[name] or None) if name in message else None,)  # `get` and `append` cost a call for each
    for value in rest:
        members += (value or None,)
    plain = members == _PLAIN
    return sha256(parts + (_PLAIN_JSON if plain else json.dumps(members, sort_keys=True).encode())).digest()
