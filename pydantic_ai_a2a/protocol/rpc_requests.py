"""Readers of requests, in JSON-RPC's envelope (§9) or without it (§11), for all codecs.

A codec validates a whole body in one pass. Only a refused body is examined again, to name the error and the bad fields.
No answer repeats content of a request, except its id.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import MISSING
from dataclasses import fields as dataclass_fields
from itertools import islice
from types import MappingProxyType
from typing import Annotated, Any, Literal, NoReturn, NotRequired, Union, cast
from urllib.parse import parse_qsl

from pydantic import ConfigDict, Discriminator, TypeAdapter, ValidationError
from pydantic_core import from_json, to_json
from typing_extensions import TypedDict

from ..errors import (
    A2AError,
    FieldViolation,
    InvalidParamsError,
    InvalidRequestError,
    JSONParseError,
    MethodNotFoundError,
    PayloadTooLargeError,
)
from ..types import faults_of
from .fields import DIGITS_AS_ZERO, LONG_NUMBER, MAX_ID, MAX_ITEMS
from .operations import Operation, Params, RpcRefused, RpcRequest

_MAX_QUERY = 100
_NAN = re.compile(rb'NaN(?<=[\s:,\[]NaN)')
"""NaN at the beginning of a value."""
_FLAGS: Mapping[str, object] = MappingProxyType({'true': True, 'false': False})

_SHAPE: Any = TypedDict
_UNION: Any = Union
_ANNOTATED: Any = Annotated
_LITERAL: Any = Literal


class Requests:
    """The JSON-RPC requests of one codec.

    Args:
        methods: The operations by the codec's method names.
        params: Types of the params, by name of the operation. The params of other operations are not read.
        fields: The field names of the codec: every spelling, and the spelling for error texts.
    """

    def __init__(self, methods: Mapping[str, Operation], params: Mapping[str, Any], fields: Mapping[str, str]) -> None:
        self._methods = methods
        self._fields = fields
        optional = {method: operation for method, operation in methods.items() if _may_be_absent(operation)}
        self._defaults: dict[str, Params] = {method: operation.params() for method, operation in optional.items()}
        shapes: list[Any] = []
        for method, operation in methods.items():
            # The id is checked when it is encoded.
            shape: dict[str, Any] = {'jsonrpc': Literal['2.0'], 'id': NotRequired[Any], 'method': _LITERAL[method]}
            if (reads := params.get(operation.name)) is not None:
                shape['params'] = NotRequired[reads | None] if method in optional else reads
            shapes.append(_SHAPE(method, shape))
        tagged: Any = _ANNOTATED[_UNION[tuple(shapes)], Discriminator('method')]
        # A cache of all strings would keep the ids and short texts of the last thousands of requests.
        self._adapter = TypeAdapter[Any](tagged, config=ConfigDict(defer_build=True, cache_strings='keys'))

    def read(self, body: bytes) -> RpcRequest:
        """Read a request.

        Raises:
            RpcRefused: The body is no request, or its params do not fit the operation. No other exception is raised.
        """
        try:
            request = self._adapter.validate_json(body)
        except ValidationError as error:
            raise self._refusal(body, error) from None
        if b'\\u0000' in body or b'NaN' in body or b'Infinity' in body:
            self._check_text(body)
        method = request['method']
        params = request.get('params') or self._defaults.get(method)
        return RpcRequest(encode_id(request.get('id')), self._methods[method], params, 'id' not in request)

    def _check_text(self, body: bytes) -> None:
        """Refuse text and numbers that validation accepts inside values of any type."""
        if b'\\u0000' not in body and not _holds_constants(body):
            return
        request = cast('dict[str, object]', parse_json(body))
        if error := _bad_text(request.get('params'), self._fields):
            raise self._refused(error, request, encode_id(request.get('id')))

    def _refusal(self, body: bytes, error: ValidationError) -> RpcRefused:
        """Return the refusal of a body, in JSON-RPC's terms.

        Args:
            body: The body of the request.
            error: The result of validation. `loc` begins with the method and `params` if both are right.
        """
        try:
            request, id = _envelope(body)
            return self._refused(_fault(request, error, self._methods, self._fields), request, id)
        except RpcRefused as refused:
            return refused

    def _refused(self, error: A2AError, request: Mapping[str, object], id: bytes) -> RpcRefused:
        method = request.get('method')
        operation = self._methods.get(method) if isinstance(method, str) else None
        return RpcRefused(error, id, operation, notification=_is_notification(request))


def _may_be_absent(operation: Operation) -> bool:
    return all(field.default is not MISSING for field in dataclass_fields(operation.params))


def read_params(body: bytes, path: Mapping[str, str], params: TypeAdapter[Any], fields: Mapping[str, str]) -> Any:
    """Read the params in a body without an envelope; an empty body has none.

    Args:
        body: The body of the request.
        path: The params in the path.
        params: The type of the params.
        fields: As for `Requests`.

    Raises:
        JSONParseError: The body is no JSON.
        InvalidRequestError: The body is no object.
        InvalidParamsError: The params do not fit the operation, or contradict the path.
    """
    try:
        if path or not body:
            value = check_params(_object(body or b'{}', fields), path, params, fields)
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
        _object(body, fields)  # raises a clearer error if the body is not an object
        raise invalid(error, fields) from None
    _refuse_constants(body)
    return value


def read_query(query: bytes, fields: Mapping[str, str], flags: Collection[str]) -> dict[str, object]:
    """Read the params in a query, by the field names of error texts. Unknown and empty params are ignored.

    Args:
        query: The query of the request.
        fields: As for `Requests`, for one operation.
        flags: Names of the params with the values `true` and `false`.

    Raises:
        InvalidParamsError: The query is malformed, or repeats a param.
    """
    try:
        pairs = parse_qsl(query.decode(), errors='strict', max_num_fields=_MAX_QUERY)
    except ValueError:
        raise InvalidParamsError(f'Invalid parameters: at most {_MAX_QUERY}, as URL-encoded UTF-8') from None
    values: dict[str, object] = {}
    for name, value in pairs:
        if (field := fields.get(name)) is None:
            continue
        if field in values:
            raise InvalidParamsError.of(field, 'must be given once')
        values[field] = _FLAGS.get(value, value) if field in flags else value
    return values


def check_params(
    values: Mapping[str, object], path: Mapping[str, str], params: TypeAdapter[Any], fields: Mapping[str, str]
) -> Any:
    """Validate the params of a body or a query together with the params of the path.

    Args:
        values: The params in the body or the query.
        path: The params in the path, by the field names of error texts.
        params: The type of the params.
        fields: As for `Requests`.

    Raises:
        InvalidParamsError: The params do not fit the operation, or contradict the path.
    """
    for name, value in values.items():
        field = fields.get(name, name)
        if value not in (None, '', path.get(field, value)):
            raise InvalidParamsError.of(field, 'must be the same as in the path')
    try:
        return params.validate_json(to_json({**values, **path}))
    except ValidationError as error:
        raise invalid(error, fields) from None


def _object(body: bytes, fields: Mapping[str, str]) -> dict[str, object]:
    try:
        value = from_json(body)
    except ValueError:
        raise RpcRefused(_unreadable({'params': parse_json(body)}, fields)) from None
    if not isinstance(value, dict):
        raise RpcRefused(InvalidRequestError('Invalid request: it must be one JSON object'))
    _refuse_constants(body)
    return cast('dict[str, object]', value)


def _refuse_constants(body: bytes) -> None:
    """Refuse NaN and infinity, which validation accepts inside values of any type."""
    if _holds_constants(body):
        parse_json(body)


def _holds_constants(body: bytes) -> bool:
    """Return True if the JSON may hold NaN or infinity as values. Files often have the letters NaN in their base64."""
    return b'Infinity' in body or _NAN.search(body) is not None


def _holds_nul(value: object) -> bool:
    # Once escaped backslashes are removed, each `\u0000` is an escaped NUL.
    return b'\\u0000' in to_json(value).replace(rb'\\', b'')


def _bad_text(params: object, fields: Mapping[str, str]) -> A2AError | None:
    """Return the error of params with NUL, which databases do not store."""
    names = bad_fields(params, _holds_nul, fields)
    return invalid_fields(FieldViolation(name, 'must not hold NUL characters') for name in names) if names else None


def encode_id(id: object) -> bytes:
    """Return a request's parsed id as JSON.

    Raises:
        RpcRefused: The id is no string, integer or null, or is too long.
    """
    if id is None or type(id) is int or (type(id) is str and len(id) <= MAX_ID):
        return to_json(id)
    text = f'Invalid request: id must be a string of at most {MAX_ID} characters, an integer or null'
    raise RpcRefused(InvalidRequestError(text))


def request_id(body: bytes) -> tuple[bytes, bool]:
    """Read the id of a request that is refused before its other members are decoded.

    Returns:
        The id as JSON, `null` if unreadable; and True if the request is a notification.
    """
    try:
        request, id = _envelope(body)
    except RpcRefused as refused:
        return refused.id, False
    return id, _is_notification(request)


def parse_json(body: bytes) -> object:
    """Parse JSON as strictly as RFC 8259: UTF-8, no NaN, no Infinity. Only lone surrogates are accepted.

    Raises:
        RpcRefused: The body is no JSON.
    """
    try:
        return json.loads(body.decode(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise RpcRefused(JSONParseError()) from None


def _refuse_constant(_: str) -> NoReturn:
    raise ValueError


def _is_notification(request: Mapping[str, object]) -> bool:
    """True for a request object without an id. JSON-RPC 2.0 (§4.1) gives it no answer, not even an error."""
    return 'id' not in request and request.get('jsonrpc') == '2.0' and isinstance(request.get('method'), str)


def _envelope(body: bytes) -> tuple[dict[str, object], bytes]:
    request = parse_json(body)
    if not isinstance(request, dict):
        batch = '; batches are not supported' if isinstance(request, list) else ''
        raise RpcRefused(InvalidRequestError(f'Invalid request: it must be one JSON object{batch}'))
    envelope = cast('dict[str, object]', request)
    id = envelope.get('id')
    if has_lone_surrogates(id):
        raise RpcRefused(InvalidRequestError('Invalid request: id must not hold lone surrogates'))
    return envelope, encode_id(id)


def _fault(
    request: dict[str, object], error: ValidationError, methods: Collection[str], fields: Mapping[str, str]
) -> A2AError:
    method = request.get('method')
    if request.get('jsonrpc') != '2.0':
        return InvalidRequestError('Invalid request: jsonrpc must be "2.0"')
    if not isinstance(method, str) or has_lone_surrogates(method):
        return InvalidRequestError('Invalid request: method must be a string')
    if method not in methods:
        return MethodNotFoundError()
    if error.error_count() == 1 and faults_of(error)[0]['type'] == 'json_invalid':
        return _unreadable(request, fields)
    return invalid(error, fields, envelope=2)


def _unreadable(request: dict[str, object], fields: Mapping[str, str]) -> A2AError:
    """Return the error of a body that one JSON parser accepts and the stricter parser refuses."""
    if names := bad_fields(request.get('params'), has_lone_surrogates, fields):
        return invalid_fields(FieldViolation(name, 'must not hold lone surrogates') for name in names)
    if has_lone_surrogates(request):
        return InvalidRequestError('Invalid request: it must not hold lone surrogates')
    raise RpcRefused(JSONParseError('Invalid JSON payload: nested too deeply.'))


# --- errors that name the bad fields of a request ---------------------------------------------------------------------
# No text repeats a value of the request.

_MAX_VIOLATIONS = 100
_MAX_DETAILS = 1_000
"""Most bad fields with details: Pydantic can only list all of them, which takes time."""
_MAX_NAMED = 5
_MAX_DEPTH = 8
_OPAQUE = {('data',), ('metadata',)}


def invalid(
    error: ValidationError,
    fields: Mapping[str, str] = MappingProxyType({}),
    *,
    envelope: int = 0,
) -> InvalidParamsError:
    """Return the error of invalid params for the client.

    Args:
        error: The result of validation.
        fields: The field names of the codec: every spelling, and the spelling for error texts.
        envelope: Number of path steps before the params.
    """
    if (count := error.error_count()) > _MAX_DETAILS:
        return InvalidParamsError(f'Invalid parameters: {count} problems')
    return invalid_fields(
        FieldViolation(
            _path(detail['loc'][envelope:], fields),
            'must not hold control characters' if detail['type'] == 'string_pattern_mismatch' else detail['msg'],
        )
        for detail in faults_of(error)
    )


def _path(loc: tuple[int | str, ...], fields: Mapping[str, str]) -> str:
    path = ''.join(f'[{key}]' if isinstance(key, int) else f'.{fields.get(key, key)}' for key in loc)
    return path.removeprefix('.') or 'params'


def invalid_fields(violations: Iterable[FieldViolation]) -> InvalidParamsError:
    """Return the error of several bad fields: all in the details, the first few also in the message."""
    listed = list(islice(violations, _MAX_VIOLATIONS))
    named = '; '.join(f'{violation.field}: {violation.description}' for violation in listed[:_MAX_NAMED])
    more = '; and more' if len(listed) > _MAX_NAMED else ''
    return InvalidParamsError(f'Invalid parameters: {named}{more}', violations=listed)


def bad_fields(value: object, bad: Callable[[object], bool], fields: Mapping[str, str]) -> list[str]:
    """Return the paths of the fields with a bad value, as deep as the codec has names for them.

    Only bad values are entered, so `bad` may be a fast check of a whole tree.
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
        for inner in _bad_paths(item, bad, fields, member):
            nothing = False
            yield inner
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


def has_lone_surrogates(value: object) -> bool:
    """Return True if a value holds lone surrogates, which no encoding of Unicode can express."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except (UnicodeEncodeError, RecursionError) as error:
        return isinstance(error, UnicodeEncodeError)
    return False


# --- limit of the JSON values of a body, counted before the body is parsed (§13) --------------------------------------

_STRING = re.compile(rb'"(?:[^"\\]++|\\.?)*+(?:"|\Z)', re.DOTALL)
"""A JSON string; an unterminated string extends to the end."""

_LONG_NUMBER = re.compile(rb'0{309,}+')
_LONG_NUMBERS = 8
"""Most long numbers that are parsed, to be refused by their fields: parsing takes time by the square of the digits."""


def check_values(body: bytes, limit: int) -> None:
    """Refuse JSON with more values than the limit, or with many numbers beyond a double, without parsing it.

    Raises:
        PayloadTooLargeError: The body has too many values or numbers.
    """
    if LONG_NUMBER in (digits := body.translate(DIGITS_AS_ZERO)):
        _check_long_numbers(digits)
    if count_values(body, limit) > limit:
        raise PayloadTooLargeError(f'The request body holds more than {limit} JSON values.')


def count_values(body: bytes, limit: int) -> int:
    """Return a number of JSON values that the body holds at most, without parsing it; more than the limit if it may.

    Up to 64 values are estimated: commas and brackets within strings count too.
    """
    if (estimate := _values(body)) <= min(limit, 64):
        return estimate
    # Strings may have any number of commas, so the count leaves strings out, and counts strings apart. A value has at
    # most two strings, the value itself and its key, and a string has two quotes. The parts between quotes are by turns
    # outside and inside of strings, once escaped quotes are removed.
    parts = body.replace(rb'\\', b'').replace(rb'\"', b'').split(b'"', 4 * limit + 2)
    return limit + 1 if len(parts) > 4 * limit + 2 else _values(b''.join(parts[::2]))


def _check_long_numbers(digits: bytes) -> None:
    """Refuse many long numbers, in JSON whose digits are all zeros. Numbers within strings do not count."""
    if len(_LONG_NUMBER.findall(digits)) > _LONG_NUMBERS < len(_LONG_NUMBER.findall(_STRING.sub(b'', digits))):
        raise PayloadTooLargeError(
            'The request body holds too many numbers beyond the range of a double: send them as strings.'
        )


def _values(json: bytes) -> int:
    """Return an upper bound of the number of values in JSON."""
    return 1 + json.count(b',') + json.count(b'[') + json.count(b'{')
