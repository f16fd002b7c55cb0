"""The JSON of what a workflow takes and returns: objects, which may grow.

A process of another version leaves out members that it does not know, and takes the defaults of those that are missing.
So members are never renamed, and further ones have defaults.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from pydantic import ConfigDict
from pydantic_core import from_json, to_json

JSON_CONFIG = ConfigDict(ser_json_bytes='base64', val_json_bytes='base64')


def as_object(body: bytes, kind: type[Any], **nested: Sequence[str]) -> bytes:
    """Return a stored value as a JSON object. The versions before wrote an array.

    Args:
        body: The value.
        kind: Dataclass with the members of the object, which begin with those of the array in its order.
        nested: Members that were arrays, too, with the names of their own members.
    """
    if not body.startswith(b'['):
        return body
    values = dict(zip((member.name for member in fields(kind)), from_json(body), strict=False))
    values |= {name: dict(zip(members, values[name], strict=False)) for name, members in nested.items()}
    return to_json(values)
