"""The requests of HTTP+JSON (§11), and readers of their params: in the body, in the query and in the path."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, cast
from urllib.parse import parse_qsl

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

from ...errors import InvalidParamsError, InvalidRequestError
from .invalid_params import invalid
from .refused_requests import RpcRefused
from .strict_json import bad_text, holds_constants, parse_json, unreadable

_MAX_QUERY = 100
_FLAGS: Mapping[str, object] = MappingProxyType({'true': True, 'false': False})


class HttpRequest(NamedTuple):
    """One request of the HTTP+JSON binding."""

    verb: str
    path: str
    """Path below the interface's URL, quoted."""
    query: str
    body: bytes | None
    """A JSON object; None for verbs without a body."""


def read_params(body: bytes, path: Mapping[str, str], params: TypeAdapter[Any], fields: Mapping[str, str]) -> Any:
    """Read the params in a body without an envelope; an empty body has none.

    Args:
        body: The body of the request.
        path: The params in the path.
        params: The type of the params.
        fields: As for `RpcRequests`.

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
        if b'\\u0000' in body and (error := bad_text(parse_json(body), fields)):
            raise error
        return value
    except RpcRefused as refused:
        raise refused.error from None


def read_query(query: bytes, fields: Mapping[str, str], flags: Collection[str]) -> dict[str, object]:
    """Read the params in a query, by the field names of error texts. Unknown and empty params are ignored.

    Args:
        query: The query of the request.
        fields: As for `RpcRequests`, for one operation.
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
        fields: As for `RpcRequests`.

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


def _validated(body: bytes, params: TypeAdapter[Any], fields: Mapping[str, str]) -> Any:
    try:
        value = params.validate_json(body)
    except ValidationError as error:
        _object(body, fields)  # raises a clearer error if the body is not an object
        raise invalid(error, fields) from None
    _refuse_constants(body)
    return value


def _object(body: bytes, fields: Mapping[str, str]) -> dict[str, object]:
    try:
        value = from_json(body)
    except ValueError:
        raise RpcRefused(unreadable({'params': parse_json(body)}, fields)) from None
    if not isinstance(value, dict):
        raise RpcRefused(InvalidRequestError('Invalid request: it must be one JSON object'))
    _refuse_constants(body)
    return cast('dict[str, object]', value)


def _refuse_constants(body: bytes) -> None:
    """Refuse NaN and infinity, which validation accepts inside values of any type."""
    if holds_constants(body):
        parse_json(body)
