"""Readers of requests in the envelope of JSON-RPC (§9), for all codecs.

A codec validates a whole body in one pass. Only a refused body is examined again, to name the error and the bad fields.
No answer repeats content of a request, except its id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING
from dataclasses import fields as dataclass_fields
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, Union, cast

from pydantic import ConfigDict, Discriminator, TypeAdapter, ValidationError
from pydantic_core import to_json
from typing_extensions import TypedDict

from ...errors import A2AError, InvalidRequestError, MethodNotFoundError
from ...json_values import faults_of
from .invalid_params import invalid
from .nearest_names import nearest_method
from .operations import Operation, Params
from .refused_requests import RpcRefused
from .request_fields import MAX_ID
from .strict_json import bad_text, has_lone_surrogates, holds_constants, parse_json, unreadable

_SHAPE: Any = TypedDict
_UNION: Any = Union
_ANNOTATED: Any = Annotated
_LITERAL: Any = Literal


class RpcRequest(NamedTuple):
    """One JSON-RPC request."""

    id: bytes
    """The request's id as JSON, for the answer; `null` without an id."""
    operation: Operation
    params: Params | None
    notification: bool = False
    """True if the request has no id: its client expects no answer."""


class RpcRequests:
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
        if b'\\u0000' not in body and not holds_constants(body):
            return
        request = cast('dict[str, object]', parse_json(body))
        if error := bad_text(request.get('params'), self._fields):
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
    request: dict[str, object], error: ValidationError, methods: Mapping[str, Operation], fields: Mapping[str, str]
) -> A2AError:
    method = request.get('method')
    if request.get('jsonrpc') != '2.0':
        return InvalidRequestError('Invalid request: jsonrpc must be "2.0"')
    if not isinstance(method, str) or has_lone_surrogates(method):
        return InvalidRequestError('Invalid request: method must be a string')
    if method not in methods:
        nearest = nearest_method(method, methods)
        return MethodNotFoundError(f'Method not found. Did you mean {nearest}?' if nearest else None)
    if error.error_count() == 1 and faults_of(error)[0]['type'] == 'json_invalid':
        return unreadable(request, fields)
    return invalid(error, fields, envelope=2)
