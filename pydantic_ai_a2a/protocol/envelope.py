"""Requests as codecs read them, in JSON-RPC's envelope (§9) or without (§11). Knows no version's names.

A codec validates a whole body in one pass. What that pass refuses is looked at once more, slowly, to tell the client
which of the errors it is and which fields are bad. No answer repeats what was sent, except the request's id.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING
from dataclasses import fields as dataclass_fields
from itertools import islice
from types import MappingProxyType
from typing import Annotated, Any, Literal, NoReturn, NotRequired, Union, cast
from urllib.parse import parse_qsl

from pydantic import ConfigDict, Discriminator, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, from_json, to_json
from typing_extensions import TypedDict

from ..errors import (
    A2AError,
    FieldViolation,
    InvalidParamsError,
    InvalidRequestError,
    JSONParseError,
    MethodNotFoundError,
)
from .codec import Params, RpcRefused, RpcRequest
from .fields import MAX_ID, MAX_ITEMS
from .operations import Operation

__all__ = (
    'bad_fields',
    'check_params',
    'defaults',
    'encode_id',
    'invalid',
    'invalid_fields',
    'parse_json',
    'read',
    'read_params',
    'read_query',
    'request_id',
    'requests',
    'with_path',
)

_MAX_VIOLATIONS = 100
_MAX_DETAILS = 1_000
"""Of more bad fields than that none is told: Pydantic can only tell them all, which takes time."""
_MAX_NAMED = 5
_MAX_DEPTH = 8
_MAX_QUERY = 100
_OPAQUE = {('data',), ('metadata',)}
_NAN = re.compile(rb'NaN(?<=[\s:,\[]NaN)')
"""NaN where a value may begin."""
_FLAGS: Mapping[str, object] = MappingProxyType({'true': True, 'false': False})


_SHAPE: Any = TypedDict
_UNION: Any = Union
_ANNOTATED: Any = Annotated
_LITERAL: Any = Literal


def requests(methods: Mapping[str, Operation], params: Mapping[str, Any]) -> TypeAdapter[Any]:
    """Return the reader of the requests that a codec knows. Their ids are checked when they are encoded.

    Args:
        methods: Their methods, and what they ask for.
        params: The params by the name of the operation; an operation without params there has none that are read.
    """
    shapes: list[Any] = []
    for method, operation in methods.items():
        shape: dict[str, Any] = {'jsonrpc': Literal['2.0'], 'id': NotRequired[Any], 'method': _LITERAL[method]}
        if (reads := params.get(operation.name)) is not None:
            shape['params'] = NotRequired[reads | None] if _may_be_absent(operation) else reads
        shapes.append(_SHAPE(method, shape))
    tagged: Any = _ANNOTATED[_UNION[tuple(shapes)], Discriminator('method')]
    return TypeAdapter[Any](tagged, config=ConfigDict(defer_build=True))


def defaults(methods: Mapping[str, Operation]) -> dict[str, Params]:
    """Return the params of the methods that may go without."""
    return {method: operation.params() for method, operation in methods.items() if _may_be_absent(operation)}


def _may_be_absent(operation: Operation) -> bool:
    return all(field.default is not MISSING for field in dataclass_fields(operation.params))


def read(
    body: bytes,
    requests: TypeAdapter[Any],
    methods: Mapping[str, Operation],
    fields: Mapping[str, str],
    defaults: Mapping[str, Params],
) -> RpcRequest:
    """Read a request.

    Args:
        body: What was sent.
        requests: The requests that the codec knows.
        methods: What their methods ask for.
        fields: The names the codec knows: a field's every spelling, to the one that the client is told.
        defaults: The params of methods that may go without.

    Raises:
        RpcRefused: It is no request, or its params are not the operation's. Nothing else is ever raised.
    """
    try:
        request = requests.validate_json(body)
    except ValidationError as error:
        raise _refusal(body, error, methods, fields) from None
    if b'\\u0000' in body or b'NaN' in body or b'Infinity' in body:
        _check_text(body, methods, fields)
    method = request['method']
    params = request.get('params') or defaults.get(method)
    return RpcRequest(encode_id(request.get('id')), methods[method], params, 'id' not in request)


def read_params(body: bytes, given: Mapping[str, str], params: TypeAdapter[Any], fields: Mapping[str, str]) -> Any:
    """Read the params of a body that has no envelope; an empty one has none.

    Args:
        body: What was sent.
        given: What the path says.
        params: The params of the operation.
        fields: As for `read`.

    Raises:
        JSONParseError: The body is no JSON.
        InvalidRequestError: It is no object.
        InvalidParamsError: The params are not the operation's, or contradict the path.
    """
    try:
        if given or not body:
            value = check_params(_object(body or b'{}', fields), given, params, fields)
        else:
            value = _validated(body, params, fields)
        if b'\\u0000' in body and (error := _bad_text(parse_json(body), fields)):
            raise error
        return value
    except RpcRefused as refused:
        raise refused.error from None


def _validated(body: bytes, params: TypeAdapter[Any], fields: Mapping[str, str]) -> Any:
    try:
        value = params.validate_json(body)
    except ValidationError as error:
        _object(body, fields)  # says better what is wrong with what is no object
        raise invalid(error, fields) from None
    _check_numbers(body)
    return value


def read_query(query: bytes, fields: Mapping[str, str], flags: Collection[str]) -> dict[str, object]:
    """Read the params of a query by the names that the client is told; unknown and empty ones are passed over.

    Args:
        query: As it was sent.
        fields: As for `read`, of one operation.
        flags: Those that are `true` or `false`.

    Raises:
        InvalidParamsError: It is no query, or says something twice.
    """
    try:
        pairs = parse_qsl(query.decode(), errors='strict', max_num_fields=_MAX_QUERY)
    except ValueError:
        raise InvalidParamsError(f'Invalid parameters: at most {_MAX_QUERY}, as URL-encoded UTF-8') from None
    told: dict[str, object] = {}
    for name, value in pairs:
        if (field := fields.get(name)) is None:
            continue
        if field in told:
            raise InvalidParamsError.of(field, 'must be given once')
        told[field] = _FLAGS.get(value, value) if field in flags else value
    return told


def check_params(
    told: Mapping[str, object], given: Mapping[str, str], params: TypeAdapter[Any], fields: Mapping[str, str]
) -> Any:
    """Validate the params of a body or a query together with those of the path.

    Args:
        told: What the body or the query says.
        given: What the path says.
        params: The params of the operation.
        fields: As for `read`.

    Raises:
        InvalidParamsError: They are not the operation's, or contradict each other.
    """
    try:
        return params.validate_json(to_json(with_path(told, given, fields)))
    except ValidationError as error:
        raise invalid(error, fields) from None


def with_path(told: Mapping[str, object], given: Mapping[str, str], fields: Mapping[str, str]) -> dict[str, object]:
    """The params of a body or a query with those of the path, unvalidated.

    Args:
        told: What the body or the query says.
        given: What the path says, by the names that the client is told.
        fields: As for `read`.

    Raises:
        InvalidParamsError: They contradict each other.
    """
    for name, value in told.items():
        field = fields.get(name, name)
        if value not in (None, '', given.get(field, value)):
            raise InvalidParamsError.of(field, 'must be what the path says')
    return {**told, **given}


def _object(body: bytes, fields: Mapping[str, str]) -> dict[str, object]:
    try:
        value = from_json(body)
    except ValueError:
        raise RpcRefused(_unreadable({'params': parse_json(body)}, fields)) from None
    if not isinstance(value, dict):
        raise RpcRefused(InvalidRequestError('Invalid request: it must be one JSON object'))
    _check_numbers(body)
    return cast('dict[str, object]', value)


def _check_numbers(body: bytes) -> None:
    """Refuse NaN and infinity, which validation lets pass inside values of any type."""
    if _holds_constants(body):
        parse_json(body)


def _holds_constants(body: bytes) -> bool:
    """Return True if the JSON may hold NaN or infinity as values. Files often have the letters NaN in their base64."""
    return b'Infinity' in body or _NAN.search(body) is not None


def _holds_nul(value: object) -> bool:
    # Without the escaped backslashes, what looks like an escaped NUL is one.
    return b'\\u0000' in to_json(value).replace(rb'\\', b'')


def _check_text(body: bytes, methods: Mapping[str, Operation], fields: Mapping[str, str]) -> None:
    """Refuse what validation lets pass inside values of any type."""
    if b'\\u0000' not in body and not _holds_constants(body):
        return
    request = cast('dict[str, object]', parse_json(body))
    if error := _bad_text(request.get('params'), fields):
        operation, notification = _operation(request, methods), _is_notification(request)
        raise RpcRefused(error, encode_id(request.get('id')), operation, notification=notification)


def _bad_text(params: object, fields: Mapping[str, str]) -> A2AError | None:
    """The error of params that hold NUL, which databases do not store."""
    names = bad_fields(params, _holds_nul, fields)
    return invalid_fields(FieldViolation(name, 'must not hold NUL characters') for name in names) if names else None


def encode_id(id: object) -> bytes:
    """A request's id, parsed, as JSON.

    Raises:
        RpcRefused: It is no string, integer or null, or too long.
    """
    if id is None or type(id) is int or (type(id) is str and len(id) <= MAX_ID):
        return to_json(id)
    text = f'Invalid request: id must be a string of at most {MAX_ID} characters, an integer or null'
    raise RpcRefused(InvalidRequestError(text))


def request_id(body: bytes) -> tuple[bytes, bool]:
    """Read the id of a request that is refused without decoding the rest.

    Returns:
        The id as JSON, `null` if it cannot be read; and whether the request is a notification.
    """
    try:
        request, id = _envelope(body)
    except RpcRefused as refused:
        return refused.id, False
    return id, _is_notification(request)


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


def _refusal(
    body: bytes, error: ValidationError, methods: Mapping[str, Operation], fields: Mapping[str, str]
) -> RpcRefused:
    """Why a body did not validate, in JSON-RPC's terms.

    Args:
        body: What was sent.
        error: What validation made of it. `loc` begins with the method and `params` where these are right.
        methods: The methods the codec knows.
        fields: The names the codec knows: a field's every spelling, to the one that the client is told.
    """
    try:
        request, id = _envelope(body)
        fault = _fault(request, error, methods, fields)
        return RpcRefused(fault, id, _operation(request, methods), notification=_is_notification(request))
    except RpcRefused as refused:
        return refused


def _is_notification(request: Mapping[str, object]) -> bool:
    """True for a request object without an id. JSON-RPC 2.0 (§4.1) gives it no answer, not even an error."""
    return 'id' not in request and request.get('jsonrpc') == '2.0' and isinstance(request.get('method'), str)


def _operation(request: dict[str, object], methods: Mapping[str, Operation]) -> Operation | None:
    method = request.get('method')
    return methods.get(method) if isinstance(method, str) else None


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
    if error.error_count() == 1 and _details(error)[0]['type'] == 'json_invalid':
        return _unreadable(request, fields)
    return invalid(error, fields, envelope=2)


def _unreadable(request: dict[str, object], fields: Mapping[str, str]) -> A2AError:
    """The error of a body that one JSON parser reads and the stricter one does not."""
    if names := bad_fields(request.get('params'), _unpaired, fields):
        return invalid_fields(FieldViolation(name, 'must not hold lone surrogates') for name in names)
    if _unpaired(request):
        return InvalidRequestError('Invalid request: it must not hold lone surrogates')
    raise RpcRefused(JSONParseError('Invalid JSON payload: nested too deeply.'))


def _details(error: ValidationError) -> Sequence[ErrorDetails]:
    return error.errors(include_url=False, include_context=False, include_input=False)


def invalid(
    error: ValidationError,
    fields: Mapping[str, str] = MappingProxyType({}),
    *,
    envelope: int = 0,
) -> InvalidParamsError:
    """What a client is told of params that are not valid.

    Args:
        error: Why not.
        fields: As for `read`.
        envelope: How much of the paths is around the params.
    """
    if (count := error.error_count()) > _MAX_DETAILS:
        return InvalidParamsError(f'Invalid parameters: {count} problems')
    return invalid_fields(
        FieldViolation(
            _path(detail['loc'][envelope:], fields),
            'must not hold control characters' if detail['type'] == 'string_pattern_mismatch' else detail['msg'],
        )
        for detail in _details(error)
    )


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
