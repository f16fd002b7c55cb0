"""The content of a message to a remote agent: texts, data and files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from hashlib import sha256
from typing import Any, ClassVar, Protocol, TypeAlias, cast
from uuid import uuid4

from pydantic import BaseModel
from pydantic_ai.messages import BinaryContent, CachePoint, FileUrl, StructuredContent, TextContent, UploadedFile
from pydantic_core import to_jsonable_python

from ..json_values import as_object, dump_json
from ..types.a2a_objects import Message, Part
from ..wire.parts.file_parts import file_part
from ..wire.protocol import stored_values

_TAKES = (
    'A message takes a text, data (a dict, a list, a Pydantic model or a dataclass), a file (BinaryContent or a URL '
    'such as ImageUrl), a list of these, or a Message, not {}.'
)


class Dataclass(Protocol):
    """Any dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


Content: TypeAlias = str | BaseModel | Dataclass | Mapping[str, Any] | Sequence[Any]
"""A message to an agent. A text; a file as `BinaryContent`, or as a URL such as `ImageUrl`; data as a dict, a list, a
Pydantic model or a dataclass; a list of these or of A2A's `Part`; or a whole `Message`."""


def message_of(content: Content) -> Message:
    """Return the user's message, with an id.

    Raises:
        TypeError: The content is none of what a message takes.
        ValueError: The message has fields that messages do not have.
    """
    if isinstance(content, Mapping) and _is_message(content):
        fields: Any = content
        if fields.get('role') in stored_values.ROLES:
            fields = stored_values.load_message(dump_json(content))
        if unknown := fields.keys() - Message.__annotations__.keys():
            raise ValueError(
                f'A message has no field {min(unknown)!r}: give a Message, or the JSON of a message of A2A 1.0.'
            )
        return cast('Message', {'message_id': uuid4().hex, 'role': 'user', **fields})
    return Message(role='user', parts=[*_parts(content)], message_id=uuid4().hex)


def _is_message(content: Mapping[str, Any]) -> bool:
    """Return True for a dict with a list of parts. Other dicts are data."""
    parts = content.get('parts')
    return isinstance(parts, list | tuple) and all(isinstance(part, Mapping) for part in cast('Sequence[Any]', parts))


def _parts(content: Content) -> Iterator[Part]:
    """Yield the parts of a content. A list without any text, file, model or part is data as a whole."""
    items = cast('Sequence[Any]', content) if isinstance(content, list | tuple) else ()
    if items and any(isinstance(item, str) or _is_part(item) or _is_object(item) for item in items):
        yield from (cast('Part', item) if _is_part(item) else part_of(item) for item in items)
    elif items or not isinstance(content, list | tuple):
        yield part_of(content)


def part_of(item: object) -> Part:
    """Return a text, a file or data as a part.

    Raises:
        TypeError: The item is none of these.
    """
    if isinstance(item, str):
        return Part(text=item)
    if isinstance(item, StructuredContent):
        return _data(item.value)
    if isinstance(item, TextContent):
        return Part(text=item.content)
    if isinstance(item, BinaryContent | FileUrl):
        return file_part(item)
    if isinstance(item, Mapping | list | tuple) or _is_object(item):
        return _data(cast('Any', item))
    raise TypeError(_TAKES.format(type(item).__name__))


def _is_part(item: object) -> bool:
    """Return True for a dict that is one of A2A's parts."""
    fields = as_object(item).keys()
    return bool(fields & {'text', 'data', 'raw', 'url'}) and fields <= Part.__annotations__.keys()


def _is_object(item: object) -> bool:
    """Return True for a model or a dataclass that can be sent. An uploaded file is known to its provider only."""
    is_one = isinstance(item, BaseModel) or (is_dataclass(item) and not isinstance(item, type))
    return is_one and not isinstance(item, UploadedFile | CachePoint)


def _data(value: object) -> Part:
    return Part(data=to_jsonable_python(value), media_type='application/json')


def digest_id(*values: Any) -> str:
    """Return an id for a message, made from JSON values: equal values make equal ids."""
    return sha256(dump_json(values)).hexdigest()[:32]
