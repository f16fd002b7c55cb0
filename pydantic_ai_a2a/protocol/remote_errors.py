"""Readers of the errors that a remote agent answers with, to the errors of `errors.py`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, cast

from .. import errors
from ..errors import A2AError, FieldViolation

__all__ = ('http_error', 'rpc_error', 'status_error')

_MAX_TEXT = 1_000
"""Most characters of a remote agent's text."""
_MAX_DETAILS = 100
_CONTROLS = re.compile(r'[\x00-\x1f\x7f-\x9f]+')

_JSON_RPC: Mapping[str, type[A2AError]] = {
    'PARSE_ERROR': errors.JSONParseError,
    'INVALID_REQUEST': errors.InvalidRequestError,
    'METHOD_NOT_FOUND': errors.MethodNotFoundError,
    'INVALID_PARAMS': errors.InvalidParamsError,
    'INTERNAL_ERROR': errors.InternalError,
}
_A2A: Mapping[str, type[A2AError]] = {
    error.reason: error
    for error in cast('list[type[Exception]]', [getattr(errors, name) for name in errors.__all__])
    if issubclass(error, A2AError) and error.reason is not None
}
_BY_CODE: Mapping[int, type[A2AError]] = MappingProxyType(
    {error.code: error for error in (*_JSON_RPC.values(), *_A2A.values())}
)
_BY_STATUS: Mapping[int, type[A2AError]] = MappingProxyType(
    {
        400: errors.InvalidRequestError,
        401: errors.UnauthenticatedError,
        403: errors.PermissionDeniedError,
        404: errors.NotFoundError,
        405: errors.MethodNotAllowedError,
        408: errors.RequestTimeoutError,
        413: errors.PayloadTooLargeError,
        415: errors.UnsupportedMediaTypeError,
        421: errors.MisdirectedRequestError,
        429: errors.QuotaExceededError,
        503: errors.OverloadedError,
    }
)
"""The errors below the protocol, by HTTP status."""

_VAGUE = (errors.InvalidRequestError, errors.NotFoundError)
"""Errors of statuses that say less than the reason in the body."""


def rpc_error(error: object, status: int) -> A2AError:
    """Return the error of a JSON-RPC error object.

    Args:
        error: The parsed object.
        status: HTTP status of the answer.
    """
    wire = _object(error)
    code = wire.get('code')
    text = _object(wire.get('data')).get('detail') or wire.get('message')
    kind = None if status == 200 else _BY_STATUS.get(status)
    if kind is None or status in (400, 404):
        kind = _BY_CODE.get(code if type(code) is int else 0)
    return _error(kind, text, _list(wire.get('data')), code)


def http_error(body: object, status: int) -> A2AError:
    """Return the error of an answer of the HTTP+JSON binding (§11.6).

    Args:
        body: The parsed body; anything if it is no `google.rpc.Status`.
        status: HTTP status of the answer.
    """
    wire = _object(_object(body).get('error'))
    return _error(_BY_STATUS.get(status), wire.get('message'), _list(wire.get('details')), status)


def status_error(status: int, url: str) -> A2AError:
    """Return the error of an answer without a readable refusal."""
    return _error(_BY_STATUS.get(status), f'{url} has answered with HTTP {status}.', [], status)


def _error(kind: type[A2AError] | None, text: object, details: list[object], code: object) -> A2AError:
    metadata: dict[str, str] = {}
    violations: list[FieldViolation] = []
    for detail in map(_object, details[:_MAX_DETAILS]):
        reason = detail.get('reason')
        if isinstance(reason, str):
            named = _A2A.get(reason)
            if named is None and (kind is None or kind in _VAGUE):
                named = _JSON_RPC.get(reason)
            kind = named or kind
            metadata |= {name: _line(value) for name, value in _strings(detail.get('metadata'))}
        violations += _violations(detail.get('fieldViolations'))
    if kind is None:
        kind, metadata = A2AError, {**metadata, 'code': _line(str(code))}
    message = _line(text) if isinstance(text, str) and text else None
    return kind(message, violations=violations, metadata=metadata)


def _violations(value: object) -> Iterator[FieldViolation]:
    for violation in map(_object, _list(value)[:_MAX_DETAILS]):
        field, description = violation.get('field'), violation.get('description')
        if isinstance(field, str) and isinstance(description, str):
            yield FieldViolation(_line(field), _line(description))


def _strings(value: object) -> Iterator[tuple[str, str]]:
    for name, text in _object(value).items():
        if isinstance(text, str):
            yield name, text


def _list(value: object) -> list[object]:
    return cast('list[object]', value) if isinstance(value, list) else []


def _object(value: object) -> dict[str, Any]:
    return cast('dict[str, Any]', value) if isinstance(value, dict) else {}


def _line(text: str) -> str:
    """Return text of a remote agent as one line of bounded length."""
    return _CONTROLS.sub(' ', text[:_MAX_TEXT])
