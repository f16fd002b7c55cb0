"""The types of the fields of requests, and parts as A2A 1.0 and FastA2A write them.

Each codec decides if null and empty values are unset.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from hashlib import sha256
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
from pydantic_core import PydanticCustomError, from_json, to_json
from typing_extensions import TypedDict

from ..errors import InvalidParamsError
from ..types import AgentExtension, ListParams, Message, Part, TaskQuery, count_of

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

CAMEL_CASE = ConfigDict(alias_generator=to_camel)
"""camelCase only."""
PROTO_JSON = ConfigDict(alias_generator=to_camel, validate_by_name=True, validate_by_alias=True)
"""camelCase or the proto's own names, as in ProtoJSON."""


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


_CONTENTS = frozenset({'text', 'raw', 'url', 'data'})
_MAY_BE_EMPTY = frozenset({'text', 'raw', 'data'})


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


_LIST_ALL = ListParams()


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


_UNSET: tuple[object, ...] = (None, '', [])


def read_message(wire: Mapping[str, Any]) -> Message:
    """Return a client's message from its fields by the proto's names, without 0.3's redundant `kind`."""
    message: Any = {key: value for key, value in wire.items() if key != 'kind' and value not in _UNSET}
    return message


def names_of(*wires: type[Any]) -> dict[str, str]:
    """Return every spelling of the fields of wire types, with the spelling for error texts."""
    names = (name for wire in wires for name in wire.__annotations__)
    return {spelling: to_camel(name) for name in names for spelling in (name, to_camel(name))}


# --- page tokens, which name the start of the next page of a list -----------------------------------------------------
# A token is valid only for its own list.


def task_token(before: tuple[int, str], query: TaskQuery) -> str:
    """Return the token of a page of tasks, valid for this owner and filter only."""
    return _token(*before, _filter(query))


def task_before(token: str, query: TaskQuery) -> tuple[int, str]:
    """Return the (status time, id) before which a page begins.

    Raises:
        InvalidParamsError: The token does not belong to this list with this filter.
    """
    match _values(token):
        case [int(status_at), str(task_id), name] if (
            name == _filter(query)
            and type(status_at) is int
            and 0 <= status_at < 2**63
            and len(task_id) <= MAX_ID
            and '\0' not in task_id
        ):
            return status_at, task_id
        case _:
            raise InvalidParamsError.of(
                'pageToken',
                'is not a page token of this list with these filters: send the nextPageToken of a page',
            )


def _filter(query: TaskQuery) -> str:
    return sha256(to_json([query.owner, query.context_id, query.state, query.since])).hexdigest()[:16]


def config_token(config_id: str, task_id: str) -> str:
    """Return the token of a page of a task's webhooks."""
    return _token(config_id, task_id)


def config_after(token: str, task_id: str) -> str:
    """Return the id of the webhook after which a page begins.

    Raises:
        InvalidParamsError: The token does not belong to this task's list.
    """
    match _values(token):
        case [str(config_id), name] if name == task_id:
            return config_id
        case _:
            raise InvalidParamsError.of(
                'pageToken', 'is not a page token of this list: send the nextPageToken of a page'
            )


def _token(*values: object) -> str:
    return urlsafe_b64encode(to_json(values)).decode()


def _values(token: str) -> Any:
    try:
        return from_json(urlsafe_b64decode(token.encode()))
    except ValueError:
        return None


# --- the extension by which events of gRPC streams carry their ids, after which a client resumes a stream -------------

EVENT_IDS_URI = 'https://pypi.org/project/pydantic-ai-a2a/#event-ids-v1'
"""Name of the extension, and key of its data in metadata. Data with another meaning gets another URI."""
EVENT_ID = 'eventId'
"""The field of the data with the id, a decimal number as a string."""

EVENT_IDS = AgentExtension(
    uri=EVENT_IDS_URI,
    description=(
        'Over gRPC, the metadata of each event has its id. SubscribeToTask with the id as last-event-id in the '
        'metadata of the call sends the events that follow.'
    ),
)
"""Declaration of the extension on agent cards. The extension is information only: clients activate nothing."""


# --- the extension by which an agent declares that it runs a repeated message only once -------------------------------

REPLAY_URI = 'https://pypi.org/project/pydantic-ai-a2a/#message-replay-v1'
"""Name of the extension."""
SHORTEST_ID = 16
"""Fewest characters of an anonymous caller's `messageId` by which the message is recognised: another caller may use the
same short id."""

REPLAY = AgentExtension(
    uri=REPLAY_URI,
    description=(
        'A message that is sent again with the same messageId, of at least 16 characters, and the same content is '
        'answered with its first task.'
    ),
)
"""Declaration of the extension on agent cards. The extension is information only: clients activate nothing."""


# --- the live text extension ------------------------------------------------------------------------------------------

LIVE_TEXT_URI = 'https://pypi.org/project/pydantic-ai-a2a/#live-text-v1'
"""Name of the extension."""
LIVE_TEXT = AgentExtension(
    uri=LIVE_TEXT_URI,
    description=(
        'Streams of requests that activate the extension have the text of the answer while the model writes it: an'
        ' update without append begins the text, updates with append continue it, and the last one is empty.'
    ),
)
"""Declaration of the extension on agent cards."""


# --- the run metadata extension ---------------------------------------------------------------------------------------
# Model and usage of a run, in the metadata of its task.
#
# The extension is data only, and optional for clients (§4.6).

RUN_METADATA_URI = 'https://pypi.org/project/pydantic-ai-a2a/#run-metadata-v1'
"""Name of the extension, and key of its data in metadata. Data with another meaning gets another URI."""

RUN_METADATA = AgentExtension(
    uri=RUN_METADATA_URI,
    description='Tasks of requests that activate the extension have the run id, the model and the usage in'
    ' their metadata.',
)
"""Declaration of the extension on agent cards."""

USAGE_COUNTS = ('requests', 'tool_calls', 'input_tokens', 'output_tokens', 'cache_read_tokens', 'cache_write_tokens')
"""The published counts of a run's usage; the cost is never published."""
_URI = RUN_METADATA_URI.encode()


def is_asked(request: bytes) -> bool:
    """Return True if the message of a run has activated the extension.

    Args:
        request: The stored part of the message's request, as a JSON object.
    """
    return _URI in request and RUN_METADATA_URI in from_json(request).get('extensions', ())


LIVE = 'live'
"""The field of a stored request that wants live text before there is a reader."""
_LIVE = b'"live":true'


def wants_live(request: bytes | None) -> bool:
    """Return True if the message of a run has activated live text for readers that follow later."""
    return request is not None and _LIVE in request and LIVE in from_json(request)


def task_metadata(before: bytes | None, *, run_id: str, usage: Any, messages: Iterable[Any]) -> bytes:
    """Return a task's metadata after a run, as a JSON object.

    Args:
        before: The metadata before the run, whose usage is added to.
        run_id: Id of the run.
        usage: Usage of the run, a `RunUsage`; None if unknown.
        messages: New model messages of the run; the last response names the model.
    """
    metadata: dict[str, Any] = {} if before is None else from_json(before)
    before_run: Mapping[str, int] = metadata.get(RUN_METADATA_URI, {}).get('usage', {})
    data: dict[str, Any] = {'runId': run_id}
    if models := [message.model_name for message in messages if message.kind == 'response' and message.model_name]:
        data['model'] = models[-1]
    if usage is not None:
        data['usage'] = {name: count_of(before_run.get(name, 0) + count) for name, count in _counts(usage)}
    elif before_run:
        data['usage'] = before_run
    return to_json({**metadata, RUN_METADATA_URI: data})


def _counts(usage: Any) -> list[tuple[str, int]]:
    return [(to_camel(name), count_of(getattr(usage, name))) for name in USAGE_COUNTS]
