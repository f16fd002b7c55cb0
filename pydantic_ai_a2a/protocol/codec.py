"""What every codec offers, and what they share: field types, and how requests are refused. Knows no version's names.

A codec validates a whole body in one pass. What that pass refuses is looked at once more, slowly, to tell the client
which of JSON-RPC's errors it is and which fields are bad. No answer repeats what was sent, except the request's id.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from binascii import a2b_base64
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Annotated, Any, ClassVar, NamedTuple, NoReturn, TypeVar, cast

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, StringConstraints, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError, to_json

from ..errors import (
    A2AError,
    FieldViolation,
    InvalidParamsError,
    InvalidRequestError,
    JSONParseError,
    MethodNotFoundError,
)
from ..types import (
    CancelParams,
    GetParams,
    ListParams,
    Page,
    SendParams,
    StoredTask,
    SubscribeParams,
    TaskEvent,
)
from .operations import Operation

__all__ = (
    'MAX_ID',
    'MAX_ITEMS',
    'AnyJson',
    'Base64',
    'Codec',
    'Count',
    'Id',
    'Ids',
    'Line',
    'Lines',
    'MaybeId',
    'Millis',
    'Params',
    'RpcRefused',
    'RpcRequest',
    'Struct',
    'bad_fields',
    'encode_id',
    'invalid_fields',
    'parse_json',
    'refusal',
    'request_id',
)

MAX_ID = 256
"""Longest id that is accepted, in characters."""

MAX_ITEMS = 10_000
"""Longest list that is accepted."""

_MAX_VIOLATIONS = 100
_MAX_NAMED = 5
_MAX_DEPTH = 8
_OPAQUE = {('data',), ('metadata',)}

T = TypeVar('T')

Params = SendParams | GetParams | ListParams | CancelParams | SubscribeParams
"""What a codec makes of an operation's params."""


class RpcRequest(NamedTuple):
    """One JSON-RPC request."""

    id: bytes
    """Its id as JSON, to be repeated in the answer; `null` where there is none."""
    operation: Operation
    params: Params | None
    """None for operations whose params nothing reads yet."""


class RpcRefused(Exception):
    """The body is no request that can be served."""

    def __init__(self, error: A2AError, id: bytes = b'null') -> None:
        self.error = error
        """What to answer."""
        self.id = id
        """The request's id as JSON, as far as it could be read."""
        super().__init__(error.message)


class Codec(ABC):
    """One version of the protocol: wire JSON to the vocabulary, and what is stored to wire JSON.

    Codecs have no state and do no I/O; decoding never changes its input.
    """

    version: ClassVar[str]
    """The version as `Major.Minor` (§3.6)."""

    @abstractmethod
    def decode(self, body: bytes) -> RpcRequest:
        """Read a JSON-RPC request.

        Raises:
            RpcRefused: It is not one, or its params are not the operation's. Nothing else is ever raised.
        """

    @abstractmethod
    def encode_task(self, task: StoredTask) -> bytes:
        """Write a task, as GetTask and CancelTask answer it."""

    @abstractmethod
    def encode_task_result(self, task: StoredTask) -> bytes:
        """Write a task, as SendMessage answers it and as a stream begins with it."""

    @abstractmethod
    def encode_event(self, event: TaskEvent) -> bytes:
        """Write an event of a stream."""

    @abstractmethod
    def encode_page(self, page: Page, *, page_size: int, next_page_token: str) -> bytes:
        """Write what ListTasks answers.

        Args:
            page: The tasks.
            page_size: How many were asked for at most.
            next_page_token: Where the next page begins; empty on the last one.
        """

    @abstractmethod
    def encode_error(self, error: A2AError, correlation_id: str) -> bytes:
        """Write the `error` object of a JSON-RPC response."""


# Field types. Whether null and empty values are unset is settled by the codec that uses them.


def _no_bool(value: object) -> object:
    if isinstance(value, bool):
        raise PydanticCustomError('integer', 'must be an integer')
    return value


def _base64(value: str) -> str:
    text = value.replace('-', '+').replace('_', '/')
    if not text.endswith('='):
        text += '=' * (-len(text) % 4)
    try:
        a2b_base64(text, strict_mode=True)
    except ValueError:
        raise PydanticCustomError('base64', 'must be base64') from None
    return text


def _millis(value: object) -> int:
    try:
        return -((_EPOCH - datetime.fromisoformat(cast('str', value))) // timedelta(milliseconds=1))
    except (TypeError, ValueError):
        raise PydanticCustomError('timestamp', 'must be an ISO 8601 time with a UTC offset or Z') from None


def _finite(value: T) -> T:
    text = to_json(value)
    if b'Infinity' in text and text != to_json(value, inf_nan_mode='null'):
        raise PydanticCustomError('finite', 'must not hold numbers beyond the range of a double')
    return value


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NO_CONTROLS = r'^[^\x00-\x1f\x7f-\x9f]*$'

Line = Annotated[str, StringConstraints(pattern=_NO_CONTROLS)]
"""Text without control characters; may be empty."""
Lines = Annotated[
    list[Annotated[str, StringConstraints(min_length=1, pattern=_NO_CONTROLS)]], Field(max_length=MAX_ITEMS)
]
Id = Annotated[str, StringConstraints(min_length=1, max_length=MAX_ID, pattern=_NO_CONTROLS)]
Ids = Annotated[list[Id], Field(max_length=MAX_ITEMS)]
MaybeId = Annotated[str, StringConstraints(max_length=MAX_ID, pattern=_NO_CONTROLS)]
"""An id; empty where there is none."""
Count = Annotated[int, Field(ge=0, lt=2**31), BeforeValidator(_no_bool)]
"""A number of things, also as a string."""
Base64 = Annotated[str, AfterValidator(_base64)]
"""Base64, standard or URL-safe, padded or not; read as standard and padded."""
Millis = Annotated[int, PlainValidator(_millis)]
"""An ISO 8601 time; read as the first millisecond that is not before it."""
AnyJson = Annotated[Any, AfterValidator(_finite)]
"""A JSON value that can be written again: numbers such as 1e999 can not."""
Struct = Annotated[dict[str, Any], AfterValidator(_finite)]
"""A JSON object that can be written again."""


# Refusals.


def encode_id(id: object) -> bytes:
    """A request's id, parsed, as JSON.

    Raises:
        RpcRefused: It is no string, integer or null, or too long.
    """
    if id is None or type(id) is int or (type(id) is str and len(id) <= MAX_ID):
        return to_json(id)
    text = f'Invalid request: id must be a string of at most {MAX_ID} characters, an integer or null'
    raise RpcRefused(InvalidRequestError(text))


def request_id(body: bytes) -> bytes:
    """A request's id as JSON, for what is refused without decoding the rest; `null` if it cannot be read."""
    try:
        return _envelope(body)[1]
    except RpcRefused as refused:
        return refused.id


def parse_json(body: bytes) -> object:
    """Parse JSON as strictly as RFC 8259 has it: UTF-8, no NaN, no Infinity; only lone surrogates pass.

    Raises:
        RpcRefused: It is not JSON.
    """
    try:
        return json.loads(body.decode(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise RpcRefused(JSONParseError()) from None


def _refuse_constant(_: str) -> NoReturn:
    raise ValueError


def refusal(body: bytes, error: ValidationError, methods: Collection[str], fields: Mapping[str, str]) -> RpcRefused:
    """Why a body did not validate, in JSON-RPC's terms.

    Args:
        body: What was sent.
        error: What validation made of it. `loc` begins with the method and `params` where these are right.
        methods: The methods the codec knows.
        fields: The names the codec knows: a field's every spelling, to the one that the client is told.
    """
    try:
        request, id = _envelope(body)
        return RpcRefused(_fault(request, error, methods, fields), id)
    except RpcRefused as refused:
        return refused


def _envelope(body: bytes) -> tuple[dict[str, object], bytes]:
    request = parse_json(body)
    if not isinstance(request, dict):
        batch = '; batches are not supported' if isinstance(request, list) else ''
        raise RpcRefused(InvalidRequestError(f'Invalid request: it must be one JSON object{batch}'))
    envelope = cast('dict[str, object]', request)
    id = envelope.get('id')
    if _unpaired(id):
        raise RpcRefused(InvalidRequestError('Invalid request: id must not hold lone surrogates'))
    return envelope, encode_id(id)


def _fault(
    request: dict[str, object], error: ValidationError, methods: Collection[str], fields: Mapping[str, str]
) -> A2AError:
    method = request.get('method')
    if request.get('jsonrpc') != '2.0':
        return InvalidRequestError('Invalid request: jsonrpc must be "2.0"')
    if not isinstance(method, str) or _unpaired(method):
        return InvalidRequestError('Invalid request: method must be a string')
    if method not in methods:
        return MethodNotFoundError()
    details = error.errors(include_url=False, include_context=False, include_input=False)
    if details[0]['type'] == 'json_invalid':
        return _unreadable(request, fields)
    return invalid_fields(_violation(detail, fields) for detail in details)


def _unreadable(request: dict[str, object], fields: Mapping[str, str]) -> A2AError:
    """The error of a body that one JSON parser reads and the stricter one does not."""
    if names := bad_fields(request.get('params'), _unpaired, fields):
        return invalid_fields(FieldViolation(name, 'must not hold lone surrogates') for name in names)
    if _unpaired(request):
        return InvalidRequestError('Invalid request: it must not hold lone surrogates')
    raise RpcRefused(JSONParseError('Invalid JSON payload: nested too deeply.'))


def _violation(detail: ErrorDetails, fields: Mapping[str, str]) -> FieldViolation:
    text = detail['msg']
    if detail['type'] == 'string_pattern_mismatch':
        text = 'must not hold control characters'
    return FieldViolation(_path(detail['loc'][2:], fields), text)


def _path(loc: tuple[int | str, ...], fields: Mapping[str, str]) -> str:
    path = ''.join(f'[{key}]' if isinstance(key, int) else f'.{fields.get(key, key)}' for key in loc)
    return path.removeprefix('.') or 'params'


def invalid_fields(violations: Iterable[FieldViolation]) -> InvalidParamsError:
    """Several bad fields: all in the details, the first few in the message too."""
    listed = list(islice(violations, _MAX_VIOLATIONS))
    named = '; '.join(f'{violation.field}: {violation.description}' for violation in listed[:_MAX_NAMED])
    more = '; and more' if len(listed) > _MAX_NAMED else ''
    return InvalidParamsError(f'Invalid parameters: {named}{more}', violations=listed)


def bad_fields(value: object, bad: Callable[[object], bool], fields: Mapping[str, str]) -> list[str]:
    """Paths of the fields of some params that hold something bad, as deep as the codec knows their names.

    Only what is bad is entered, so `bad` may be fast code that looks at a whole tree.
    """
    return [_path(path, fields) for path in islice(_bad_paths(value, bad, fields), _MAX_VIOLATIONS)]


def _bad_paths(
    value: object, bad: Callable[[object], bool], fields: Mapping[str, str], path: tuple[int | str, ...] = ()
) -> Iterator[tuple[int | str, ...]]:
    if not bad(value):
        return
    deeper = _members(value, path, fields)
    nothing = True
    for member, item in deeper:
        for found in _bad_paths(item, bad, fields, member):
            nothing = False
            yield found
    if nothing:
        yield path


def _members(
    value: object, path: tuple[int | str, ...], fields: Mapping[str, str]
) -> Iterator[tuple[tuple[int | str, ...], object]]:
    if len(path) >= _MAX_DEPTH or path[-1:] in _OPAQUE:
        return
    if isinstance(value, dict):
        for key, item in cast('dict[str, object]', value).items():
            if key in fields:
                yield (*path, key), item
    elif isinstance(value, list):
        for index, item in enumerate(cast('list[object]', value)[:MAX_ITEMS]):
            yield (*path, index), item


def _unpaired(value: object) -> bool:
    """Whether it holds lone surrogates, which no encoding of Unicode can express."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except (UnicodeEncodeError, RecursionError) as error:
        return isinstance(error, UnicodeEncodeError)
    return False
