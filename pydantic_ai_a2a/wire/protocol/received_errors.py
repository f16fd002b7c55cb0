"""Readers of the errors that a remote agent answers with, to the errors of `errors.py`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import cast

from ... import errors
from ...errors import A2AError, FieldViolation
from ...json_values import as_list, as_object
from .lenient_reading import one_line

_MAX_DETAILS = 100

_A2A: Mapping[str, type[A2AError]] = {
    error.reason: error
    for error in cast('list[type[Exception]]', [getattr(errors, name) for name in errors.__all__])
    if issubclass(error, A2AError) and error.reason is not None
}
_BY_CODE: Mapping[int, type[A2AError]] = MappingProxyType(
    {error.code: error for error in (*errors.JSON_RPC_ERRORS.values(), *_A2A.values())}
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

_REASONS = ('detail', 'error_description', 'message', 'msg', 'title', 'error')
"""Fields with the reason of a refusal: of FastAPI, of problem details (RFC 9457), of OAuth 2, and of other servers."""


def rpc_error(error: object, status: int) -> A2AError:
    """Return the error of a JSON-RPC error object.

    Args:
        error: The parsed object.
        status: HTTP status of the answer.
    """
    wire = as_object(error)
    code, data = wire.get('code'), wire.get('data')
    told = as_object(data).get('detail') or ': '.join(filter(None, [_reason(wire.get('message')), _reason(data)]))
    text = told or _reason(error)
    kind = None if status == 200 else _BY_STATUS.get(status)
    if kind is None or status in (400, 404):
        kind = _BY_CODE.get(code if type(code) is int else 0)
    return _error(kind, text, as_list(data), code)


def http_error(body: object, status: int) -> A2AError:
    """Return the error of an answer of the HTTP+JSON binding (§11.6).

    Args:
        body: The parsed body; anything if it is no `google.rpc.Status`.
        status: HTTP status of the answer.
    """
    wire = as_object(as_object(body).get('error'))
    return _error(_BY_STATUS.get(status), wire.get('message'), as_list(wire.get('details')), status)


def status_error(status: int, url: str, body: object = None) -> A2AError:
    """Return the error of an answer without a refusal of A2A.

    Args:
        status: HTTP status of the answer.
        url: URL for the error.
        body: The parsed body or its text, which may say the reason.
    """
    text = f'{url} has answered with HTTP {status}. {_reason(body)}'.rstrip()
    return _error(_BY_STATUS.get(status), text, [], status)


def _reason(value: object) -> str:
    """Return the first reason in foreign JSON; empty for none."""
    if isinstance(value, str):
        return value
    fields = as_object(value)
    inner: list[object] = [fields[name] for name in _REASONS if name in fields]
    reasons: list[str] = [_reason(item) for item in (*as_list(value)[:_MAX_DETAILS], *inner)]
    return next(filter(None, reasons), '')


def _error(kind: type[A2AError] | None, text: object, details: list[object], code: object) -> A2AError:
    metadata: dict[str, str] = {}
    violations: list[FieldViolation] = []
    for detail in map(as_object, details[:_MAX_DETAILS]):
        reason = detail.get('reason')
        if isinstance(reason, str):
            named = _A2A.get(reason)
            if named is None and (kind is None or kind in _VAGUE):
                named = errors.JSON_RPC_ERRORS.get(reason)
            kind = named or kind
            facts = as_object(detail.get('metadata'))
            metadata |= {name: one_line(value) for name, value in facts.items() if isinstance(value, str)}
        violations += _violations(detail.get('fieldViolations'))
    if kind is None:
        kind, metadata = A2AError, {**metadata, 'code': one_line(str(code))}
    message = one_line(text) if isinstance(text, str) and text else None
    return kind(message, violations=violations, metadata=metadata)


def _violations(value: object) -> Iterator[FieldViolation]:
    for violation in map(as_object, as_list(value)[:_MAX_DETAILS]):
        field, description = violation.get('field'), violation.get('description')
        if isinstance(field, str) and isinstance(description, str):
            yield FieldViolation(one_line(field), one_line(description))
