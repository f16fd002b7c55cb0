"""Every error that a client can see, in one tree, with its codes and statuses; and the internal errors of the package.

The docstring of an `A2AError` class is its default message, so the text must be safe to send. Exceptions of other
classes never reach a client: the bindings log the exception and answer `InternalError`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

__all__ = (
    'A2AError',
    'AgentUnavailable',
    'AgentUnnamed',
    'AgentUnusable',
    'AnswerNeeded',
    'BackendUnusable',
    'BeingErased',
    'CardRefused',
    'CardUnverified',
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
    'NotificationRefused',
    'OverloadedError',
    'PayloadTooLargeError',
    'PermissionDeniedError',
    'PrivateAddressError',
    'PushNotificationNotSupportedError',
    'QuotaExceededError',
    'RemoteError',
    'RemoteProtocolError',
    'RemoteUnavailable',
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

_FILES_SHOWN = 5
"""Files that an error names."""


def needs_extra(part: str, extra: str) -> str:
    """Return the text for a part of the package whose packages are missing."""
    return f"{part} needs the extra `{extra}`: pip install 'pydantic-ai-a2a[{extra}]', in a checkout '.[{extra}]'"


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """One bad field of a request (google.rpc.BadRequest.FieldViolation)."""

    field: str
    """Path of the field in the request's params, such as `message.parts[0].raw`."""
    description: str
    """The fault of the field, and the correct form."""


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
    """True if JSON-RPC also answers with `http_status` instead of 200: the request was refused below the protocol."""
    refusal: ClassVar[str | None] = None
    """Name of the refusal in the audit log, for requests that may be an attack. None if the audit log has no such
    record, or another module writes it."""

    def __init__(
        self,
        message: str | None = None,
        *,
        violations: Sequence[FieldViolation] = (),
        metadata: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.message: str = message or (type(self).__doc__ or '').partition('\n')[0]
        """Text for the client; never an exception's text, a secret or a prompt."""
        self.violations: tuple[FieldViolation, ...] = tuple(violations)
        """The bad fields, for `InvalidParamsError`."""
        self.metadata: dict[str, str] = dict(metadata or {})
        """`ErrorInfo.metadata`: strings only."""
        self.headers: dict[str, str] = dict(headers or {})
        """HTTP response headers of the error, such as `Retry-After` (seconds)."""
        super().__init__(self.message)

    @property
    def correlation_id(self) -> str | None:
        """Name of the call in the logs of a remote agent that has refused the call; None if unknown."""
        return self.metadata.get('correlationId')

    @property
    def retry_after(self) -> float | None:
        """Seconds until a repetition may succeed; None if unknown."""
        return retry_seconds(self.headers)


def retry_seconds(headers: Mapping[str, str]) -> float | None:
    """Return the seconds in the `Retry-After` header of an answer; None without the header, and for a date."""
    value = headers.get('Retry-After', '')
    return float(value) if value.isdecimal() else None


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
    """The path does not exist. The agent card lists the URLs of the agent."""


class MethodNotAllowedError(A2AError):
    """The path does not accept this HTTP method; the header `Allow` lists the accepted methods."""

    code, http_status, status, transport = -32601, 405, 'UNIMPLEMENTED', True


class InvalidParamsError(A2AError):
    """Invalid parameters."""

    code, http_status, status = -32602, 400, 'INVALID_ARGUMENT'

    @classmethod
    def of(cls, field: str, description: str) -> InvalidParamsError:
        """Return the error for one bad field, named in the message and in the details."""
        return cls(f'Invalid parameters: {field}: {description}', violations=[FieldViolation(field, description)])


class InternalError(A2AError):
    """Internal error."""


class AgentUnusable(InternalError):
    """The agent cannot be started. The log of the server has the reason, with the correlation id of this error."""


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
    """The server does not answer for the host of the request. `Access.allowed_hosts` lists the accepted hosts."""

    code, http_status, status, transport = -32600, 421, 'INVALID_ARGUMENT', True
    refusal = 'host'


class PermissionDeniedError(A2AError):
    """The caller is not allowed to do this."""

    code, http_status, status, transport = -32000, 403, 'PERMISSION_DENIED', True


class RequestTimeoutError(A2AError):
    """The request body did not arrive in time."""

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
        """Return the error for a quota, with the milliseconds until the quota may have room again."""
        seconds = max(1, -(-wait // 1000))
        text = f'The caller has used up the quota {quota}; try again in {seconds} seconds.'
        return cls(text, metadata={'quota': quota}, headers={'Retry-After': str(seconds)})


class StoreUnavailable(OverloadedError):
    """The store cannot be reached now; try again later."""

    def __init__(self, detail: str = '', *, busy: bool = False) -> None:
        super().__init__(headers={'Retry-After': '1'})
        self.detail = detail
        """The reason, for the log and for commands. Never sent to a client."""
        self.busy = busy
        """True if the store works and only this transaction took too long. A repetition may take too long again."""


class AgentUnavailable(OverloadedError):
    """The agent is not ready, such as while an MCP server is down; try again later."""

    def __init__(self) -> None:
        super().__init__(headers={'Retry-After': '5'})


class BeingErased(OverloadedError):
    """The data of the caller, or of the context, is being erased; try again later."""

    def __init__(self) -> None:
        super().__init__(headers={'Retry-After': '5'})


JSON_RPC_ERRORS: Mapping[str, type[A2AError]] = {
    'PARSE_ERROR': JSONParseError,
    'INVALID_REQUEST': InvalidRequestError,
    'METHOD_NOT_FOUND': MethodNotFoundError,
    'INVALID_PARAMS': InvalidParamsError,
    'INTERNAL_ERROR': InternalError,
}
"""The errors of JSON-RPC itself, by their reasons in the details of errors (§9.5)."""


class RemoteError(Exception):
    """A remote agent could not be called, or its answer could not be used. The text names the URL."""


class RemoteUnavailable(RemoteError):
    """A remote agent has not answered.

    Args:
        text: The reason.
        retry_after: Seconds until a repetition may succeed. Default: unknown.
    """

    task_id: str | None = None
    """Id of the task that may go on; None if the agent has named no task."""

    def __init__(self, text: str, *, retry_after: float | None = None) -> None:
        super().__init__(text)
        self.retry_after = retry_after
        """Seconds until a repetition may succeed; None if unknown."""


class RemoteProtocolError(RemoteError):
    """A remote agent has answered in a form that is not A2A."""


class CardRefused(RemoteError):
    """The agent card of a remote agent cannot be used."""


class CardUnverified(CardRefused):
    """The agent card of a remote agent has no signature of a trusted key."""


class TokenRefused(RemoteError):
    """An issuer has refused a token to `ClientCredentials`. The text has the reason of the issuer."""


class NotificationRefused(Exception):
    """A push notification of an agent is not signed by the agent, or is late, changed or repeated."""


class BackendUnusable(ValueError):
    """The store cannot be used as it is, and its operator has to act. Never sent to a client."""


class AgentUnnamed(ValueError):
    """An agent without a name cannot have a file or a database, where tasks are stored under the name."""


class CannotListen(OSError):
    """The server cannot listen on the address: it is in use, not of this machine, or not allowed."""


class AnswerNeeded(Exception):
    """A message was not checked against the current pause of its task. Never sent to a client."""


class StoreFailed(Exception):
    """The store has failed an operation of a run; the cause has the reason. Never sent to a client."""


class ResultForgotten(StoreFailed):
    """An engine that runs agents as workflows has started a run, and has its workflow no more."""


class BadInput(Exception):
    """The worker's conversion refuses a message that was accepted at submission; the text is for the client."""


class StoredDamaged(Exception):
    """A row of the store has content that the package has not written. Never sent to a client."""


class ToolConflict(Exception):
    """The client has declared tools with names of tools of the agent; the text is for the client.

    Args:
        names: The names.
    """

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(
            f'The agent has tools with the names of tools of the client: {", ".join(names)}. Choose other names.'
        )


class FileRefused(Exception):
    """The model or its provider did not take a request with files; the text is for the client.

    Args:
        files: The names and media types of the files.
    """

    def __init__(self, files: Collection[str]) -> None:
        shown = ', '.join([*files][:_FILES_SHOWN])
        more = f' and {len(files) - _FILES_SHOWN} more' if len(files) > _FILES_SHOWN else ''
        noun = 'file' if len(files) == 1 else 'files'
        super().__init__(f'The model did not take the message with the {noun} {shown}{more}.')


class NoModel(Exception):
    """The agent has no model, and neither the app nor `agent.override` provides one. Never sent to a client."""


class DownloadTimedOut(Exception):
    """The files of a request to the model were not downloaded in time. Never sent to a client."""


class ClientGone(Exception):
    """The client went away before its request was read, or its answer: there is nobody to answer."""


class LeaseLost(Exception):
    """A write was refused because another process holds the task by now. Never sent to a client."""
