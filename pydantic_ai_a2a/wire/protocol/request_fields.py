"""The types of the fields of requests, and parts as A2A 1.0 and FastA2A write them.

Each codec decides if null and empty values are unset.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, NotRequired, TypeVar, cast

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    StrictBool,
    StringConstraints,
    with_config,
)
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError, to_json
from typing_extensions import TypedDict

from ...types.a2a_objects import Message, Part
from ...types.operation_params import ListParams

MAX_ID = 256
"""Longest accepted id, in characters."""

MAX_ITEMS = 10_000
"""Longest accepted list."""

MAX_LINE = 8_192
"""Longest accepted line, such as a URL or a page token, in characters."""

WRAPPED = 'data_part_compat'
"""Marks data that is no object and was wrapped in one, as in the official SDK: a 0.3 data part holds an object."""

LONG_NUMBER = b'0' * 309
"""Zeros, as many as the largest double has digits."""
DIGITS_AS_ZERO = bytes.maketrans(b'123456789', b'0' * 9)
"""Translates all digits to zeros."""

T = TypeVar('T')

_BASE64 = b'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/'
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NO_CONTROLS = r'^[^\x00-\x1f\x7f-\x9f]*$'

Line = Annotated[str, StringConstraints(max_length=MAX_LINE, pattern=_NO_CONTROLS)]
"""Text without control characters; may be empty."""
Lines = Annotated[
    list[Annotated[str, StringConstraints(min_length=1, max_length=MAX_LINE, pattern=_NO_CONTROLS)]],
    Field(max_length=MAX_ITEMS),
]
Id = Annotated[str, StringConstraints(min_length=1, max_length=MAX_ID, pattern=_NO_CONTROLS)]
Ids = Annotated[list[Id], Field(max_length=MAX_ITEMS)]
MaybeId = Annotated[str, StringConstraints(max_length=MAX_ID, pattern=_NO_CONTROLS)]
"""An id; empty for none."""

CAMEL_CASE = ConfigDict(alias_generator=to_camel)
"""camelCase only."""
PROTO_JSON = ConfigDict(alias_generator=to_camel, validate_by_name=True, validate_by_alias=True)
"""camelCase or the proto's own names, as in ProtoJSON."""

_CONTENTS = frozenset({'text', 'raw', 'url', 'data'})
_MAY_BE_EMPTY = frozenset({'text', 'raw', 'data'})

_LIST_ALL = ListParams()

_UNSET: tuple[object, ...] = (None, '', [])


def _no_bool(value: object) -> object:
    if isinstance(value, bool):
        raise PydanticCustomError('integer', 'must be an integer')
    return value


def _base64(value: str) -> str:
    text = value.replace('-', '+').replace('_', '/')
    if not text.endswith('='):
        text += '=' * (-len(text) % 4)
    # Nothing is decoded: that takes seven times as long, and the run does it.
    rest = text.encode(errors='replace').translate(None, _BASE64)
    if len(text) % 4 or rest not in (b'', b'=', b'==') or not text.endswith(rest.decode()):
        raise PydanticCustomError('base64', 'must be base64')
    return text


def standard_base64(text: str) -> str:
    """Return base64, also URL-safe, unpadded or in lines, as standard and padded base64; other text as it is."""
    try:
        return _base64(''.join(text.split()))
    except PydanticCustomError:
        return text


def _millis(value: object) -> int:
    try:
        return -((_EPOCH - datetime.fromisoformat(cast('str', value))) // timedelta(milliseconds=1))
    except (TypeError, ValueError):
        raise PydanticCustomError('timestamp', 'must be an ISO 8601 time with a UTC offset or Z') from None


def _finite(value: T) -> T:
    text = to_json(value)
    if b'Infinity' in text or LONG_NUMBER in text.translate(DIGITS_AS_ZERO):  # perhaps in a string
        as_double = json.loads(text, parse_int=float)
        if to_json(as_double) != to_json(as_double, inf_nan_mode='null'):
            raise PydanticCustomError('finite', 'must not hold numbers beyond the range of a double')
    return value


Count = Annotated[int, Field(ge=0, lt=2**31), BeforeValidator(_no_bool)]
"""A number of items, also as a string."""


Base64 = Annotated[str, AfterValidator(_base64)]
"""Base64, standard or URL-safe, padded or not; decoded to standard and padded base64."""


Millis = Annotated[int, PlainValidator(_millis)]
"""An ISO 8601 time; decoded to the first millisecond that is not before the time."""


AnyJson = Annotated[Any, AfterValidator(_finite)]
"""A JSON value that can be written again, so without numbers such as 1e999."""


Struct = Annotated[dict[str, Any], AfterValidator(_finite)]
"""A JSON object that can be written again."""


@with_config(PROTO_JSON)
class Tenanted(TypedDict):
    """The tenant of a request of A2A 1.0."""

    tenant: NotRequired[str | None]


@with_config(PROTO_JSON)
class FlatPart(TypedDict):
    """A part with its content next to its other fields."""

    text: NotRequired[str | None]
    raw: NotRequired[Base64 | None]
    url: NotRequired[Line | None]
    data: NotRequired[AnyJson]
    filename: NotRequired[Line | None]
    media_type: NotRequired[Line | None]
    metadata: NotRequired[Struct | None]


@with_config(CAMEL_CASE)
class MessageFields(TypedDict):
    """The fields of a message that are the same in all versions."""

    message_id: Id
    context_id: NotRequired[MaybeId | None]
    task_id: NotRequired[MaybeId | None]
    metadata: NotRequired[Struct | None]
    extensions: NotRequired[Lines | None]
    reference_task_ids: NotRequired[Ids | None]


@with_config(CAMEL_CASE)
class ListFields(TypedDict, total=False):
    """The fields of a list's filter and page that are the same in all versions."""

    context_id: MaybeId | None
    page_size: Annotated[Count, Field(ge=1, le=100)] | None
    page_token: Line | None
    history_length: Count | None
    status_timestamp_after: Millis | None
    include_artifacts: StrictBool | None


def _part(wire: FlatPart) -> Part:
    part: Any = {
        key: value for key, value in wire.items() if value is not None and (value != '' or key in _MAY_BE_EMPTY)
    }
    contents = len(_CONTENTS & part.keys())
    if not contents and 'data' in wire:
        part['data'] = None
    elif contents != 1:
        raise PydanticCustomError('part', 'must hold exactly one of text, raw, url and data')
    return part


Parts = Annotated[list[Annotated[FlatPart, AfterValidator(_part)]], Field(min_length=1, max_length=MAX_ITEMS)]
"""A message's flat parts; decoded to the vocabulary's parts."""


def params_of(kind: Callable[..., object]) -> AfterValidator:
    """Make params from the fields of a request, which have the names of the params. Null fields are unset."""
    return AfterValidator(lambda wire: kind(**{name: value for name, value in wire.items() if value is not None}))


def list_params(wire: Mapping[str, Any]) -> ListParams:
    """Return the params of ListTasks from a request's fields by the proto's names."""
    return ListParams(
        context_id=wire.get('context_id') or None,
        state=wire.get('status'),
        since=wire.get('status_timestamp_after'),
        page_size=wire.get('page_size') or _LIST_ALL.page_size,
        page_token=wire.get('page_token') or None,
        history_length=wire.get('history_length'),
        include_artifacts=wire.get('include_artifacts') or False,
        tenant=wire.get('tenant') or '',
    )


def read_message(wire: Mapping[str, Any]) -> Message:
    """Return a client's message from its fields by the proto's names, without 0.3's redundant `kind`."""
    message: Any = {key: value for key, value in wire.items() if key != 'kind' and value not in _UNSET}
    return message


def names_of(*wires: type[Any]) -> dict[str, str]:
    """Return every spelling of the fields of wire types, with the spelling for error texts."""
    names = (name for wire in wires for name in wire.__annotations__)
    return {spelling: to_camel(name) for name in names for spelling in (name, to_camel(name))}
