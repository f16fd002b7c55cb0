"""Every error a client can see, in one tree. Knows the protocol's numbers; knows neither bindings nor versions.

A class's docstring is its default message, so it must be safe to send. An exception that is not an `A2AError` never
reaches a client: the bindings log it and answer `InternalError`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

__all__ = (
    'A2AError',
    'AnswerNeeded',
    'BackendUnusable',
    'ContentTypeNotSupportedError',
    'ExtendedAgentCardNotConfiguredError',
    'ExtensionSupportRequiredError',
    'FieldViolation',
    'InternalError',
    'InvalidParamsError',
    'InvalidRequestError',
    'JSONParseError',
    'LeaseLost',
    'MethodNotAllowedError',
    'MethodNotFoundError',
    'MisdirectedRequestError',
    'NotFoundError',
    'OverloadedError',
    'PayloadTooLargeError',
    'PermissionDeniedError',
    'PrivateAddressError',
    'PushNotificationNotSupportedError',
    'QuotaExceededError',
    'RequestTimeoutError',
    'StoreFailed',
    'StoreUnavailable',
    'StoredDamaged',
    'TaskNotCancelableError',
    'TaskNotFoundError',
    'UnauthenticatedError',
    'UnsupportedMediaTypeError',
    'UnsupportedOperationError',
    'VersionNotSupportedError',
)


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """One bad field of a request (google.rpc.BadRequest.FieldViolation)."""

    field: str
    """Path of the field in the request's params, such as `message.parts[0].raw`."""
    description: str
    """What is wrong with it, and what would be right."""


class A2AError(Exception):
    """The request could not be served."""

    code: ClassVar[int] = -32603
    """JSON-RPC error code (A2A 1.0 §5.4)."""
    http_status: ClassVar[int] = 500
    """HTTP status of the HTTP+JSON binding."""
    status: ClassVar[str] = 'INTERNAL'
    """The gRPC status name that belongs to `http_status`."""
    reason: ClassVar[str | None] = None
    """`ErrorInfo.reason` of the A2A-specific errors, else None."""
    transport: ClassVar[bool] = False
    """Whether JSON-RPC answers too with `http_status` instead of 200: the request was refused below the protocol."""
    refusal: ClassVar[str | None] = None
    """What the audit log calls the refusal of a request that may be an attack; None where it has no record of it, or
    has had one already."""

    def __init__(
        self,
        message: str | None = None,
        *,
        violations: Sequence[FieldViolation] = (),
        metadata: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.message: str = message or (type(self).__doc__ or '').partition('\n')[0]
        """What the client reads: never an exception's text, a secret or a prompt."""
        self.violations: tuple[FieldViolation, ...] = tuple(violations)
        """The bad fields, for `InvalidParamsError`."""
        self.metadata: dict[str, str] = dict(metadata or {})
        """`ErrorInfo.metadata`: strings only."""
        self.headers: dict[str, str] = dict(headers or {})
        """HTTP response headers that belong to the error, such as `Retry-After` (seconds)."""
        super().__init__(self.message)


class JSONParseError(A2AError):
    """Invalid JSON payload."""

    code, http_status, status = -32700, 400, 'INVALID_ARGUMENT'


class InvalidRequestError(A2AError):
    """Request payload validation error."""

    code, http_status, status = -32600, 400, 'INVALID_ARGUMENT'


class MethodNotFoundError(A2AError):
    """Method not found."""

    code, http_status, status = -32601, 404, 'NOT_FOUND'


class NotFoundError(MethodNotFoundError):
    """There is nothing at this path. The agent card says what the agent serves and where."""


class MethodNotAllowedError(A2AError):
    """The path takes other HTTP methods; `Allow` says which."""

    code, http_status, status, transport = -32601, 405, 'UNIMPLEMENTED', True


class InvalidParamsError(A2AError):
    """Invalid parameters."""

    code, http_status, status = -32602, 400, 'INVALID_ARGUMENT'

    @classmethod
    def of(cls, field: str, description: str) -> InvalidParamsError:
        """One bad field, named in the message as well as in the details."""
        return cls(f'Invalid parameters: {field}: {description}', violations=[FieldViolation(field, description)])


class InternalError(A2AError):
    """Internal error."""


class PrivateAddressError(InvalidParamsError):
    """Invalid parameters: a URL names a private address."""

    refusal = 'private-address'


class TaskNotFoundError(A2AError):
    """Task not found."""

    code, http_status, status, reason = -32001, 404, 'NOT_FOUND', 'TASK_NOT_FOUND'


class TaskNotCancelableError(A2AError):
    """Task cannot be canceled: it has already ended."""

    code, http_status, status, reason = -32002, 400, 'FAILED_PRECONDITION', 'TASK_NOT_CANCELABLE'


class UnsupportedOperationError(A2AError):
    """This operation is not supported."""

    code, http_status, status, reason = -32004, 400, 'FAILED_PRECONDITION', 'UNSUPPORTED_OPERATION'


class PushNotificationNotSupportedError(A2AError):
    """Push notifications are not supported."""

    code, http_status, status, reason = -32003, 400, 'FAILED_PRECONDITION', 'PUSH_NOTIFICATION_NOT_SUPPORTED'


class ContentTypeNotSupportedError(A2AError):
    """A part's media type is not supported by this agent."""

    code, http_status, status, reason = -32005, 400, 'INVALID_ARGUMENT', 'CONTENT_TYPE_NOT_SUPPORTED'


class ExtendedAgentCardNotConfiguredError(A2AError):
    """There is no extended agent card for this caller."""

    code, http_status, status, reason = -32007, 400, 'FAILED_PRECONDITION', 'EXTENDED_AGENT_CARD_NOT_CONFIGURED'


class ExtensionSupportRequiredError(A2AError):
    """The agent requires an extension that the request does not declare."""

    code, http_status, status, reason = -32008, 400, 'FAILED_PRECONDITION', 'EXTENSION_SUPPORT_REQUIRED'


class VersionNotSupportedError(A2AError):
    """The requested A2A protocol version is not supported."""

    code, http_status, status, reason = -32009, 400, 'FAILED_PRECONDITION', 'VERSION_NOT_SUPPORTED'


class UnauthenticatedError(A2AError):
    """Authentication is required."""

    code, http_status, status, transport = -32000, 401, 'UNAUTHENTICATED', True


class MisdirectedRequestError(A2AError):
    """The server does not answer for the host that the request names; `Access.allowed_hosts` says for which it does."""

    code, http_status, status, transport = -32600, 421, 'INVALID_ARGUMENT', True
    refusal = 'host'


class PermissionDeniedError(A2AError):
    """The caller may not do this."""

    code, http_status, status, transport = -32000, 403, 'PERMISSION_DENIED', True


class RequestTimeoutError(A2AError):
    """The request body did not come in time."""

    code, http_status, status, transport = -32600, 408, 'DEADLINE_EXCEEDED', True
    refusal = 'body-time'


class PayloadTooLargeError(A2AError):
    """The request body is larger than this server accepts."""

    code, http_status, status, transport = -32600, 413, 'INVALID_ARGUMENT', True
    refusal = 'body-size'


class UnsupportedMediaTypeError(A2AError):
    """The request body must be application/json."""

    code, http_status, status, transport = -32600, 415, 'INVALID_ARGUMENT', True
    refusal = 'media-type'


class OverloadedError(A2AError):
    """The server has too much to do or is shutting down; try again later."""

    code, http_status, status, transport = -32000, 503, 'UNAVAILABLE', True


class QuotaExceededError(A2AError):
    """The caller has used up a quota; try again later."""

    code, http_status, status, transport = -32000, 429, 'RESOURCE_EXHAUSTED', True

    @classmethod
    def of(cls, quota: str, wait: int) -> QuotaExceededError:
        """A quota by its name, and the milliseconds after which there may be something of it again."""
        seconds = max(1, -(-wait // 1000))
        return cls(metadata={'quota': quota}, headers={'Retry-After': str(seconds)})


class StoreUnavailable(OverloadedError):
    """The store cannot be reached now; try again later."""

    def __init__(self, detail: str = '', *, busy: bool = False) -> None:
        super().__init__(headers={'Retry-After': '1'})
        self.detail = detail
        """The reason, for the log and for commands. Never sent to a client."""
        self.busy = busy
        """True if the store works and only this transaction took too long, so that it may never get through."""


class BackendUnusable(ValueError):
    """The store cannot be used as it is; somebody has to change something first. Never sent to a client."""


class AnswerNeeded(Exception):
    """A message was not checked against what its task waits with, or no longer waits with. Never sent to a client."""

    def __init__(self, task_id: str, context_id: str, pause: int, pending: bytes | None) -> None:
        super().__init__(task_id)
        self.task_id = task_id
        self.context_id = context_id
        self.pause = pause
        """Number of the event since which it waits so."""
        self.pending = pending
        """What it waits with, as it was stored; None if with nothing that has to be answered."""


class StoreFailed(Exception):
    """The store has not done what a run needs of it; the cause says why. Never sent to a client."""


class BadInput(Exception):
    """The worker's own reading refuses a message that its task has accepted; the text is for the client."""


class StoredDamaged(Exception):
    """A row of the store holds something that the package has not written. Never sent to a client."""


class NoModel(Exception):
    """The agent has no model, and neither the app nor `agent.override` has given it one. Never sent to a client."""


class DownloadTimedOut(Exception):
    """The files of a request to the model were not downloaded in time. Never sent to a client."""


class LeaseLost(Exception):
    """A write was refused because the task is held by somebody else by now. Never sent to a client."""
