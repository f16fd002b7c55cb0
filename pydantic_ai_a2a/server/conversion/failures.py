"""The class of a run's failure, and the sentence about it for the client.

A client never reads an exception's own text, because it may hold a secret, a prompt or another user's data (§3.3.2).
"""

from __future__ import annotations

from typing import NamedTuple, cast

from pydantic_ai.exceptions import (
    ConcurrencyLimitExceeded,
    ContentFilterError,
    ModelAPIError,
    ModelConnectionError,
    ModelHTTPError,
    ModelOverloadedError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestTimeout,
    ModelServerError,
    ModelTimeoutError,
    ModelUnavailableError,
    RunTimedOut,
    UnexpectedModelBehavior,
    UsageLimitExceeded,
)

from ...errors import BadInput, DownloadTimedOut, FileRefused, NoModel, StoreFailed, ToolConflict

CHANGED_AGENT_HINT = (
    'The agent no longer takes the steps of its workflow. Let the tasks of an agent end before you deploy another one.'
    ' At Temporal, you may also give each version a task_queue, or run worker versions.'
)
"""Says in the log how to avoid the failure."""

_BUSY_STATUSES = frozenset({402, 429, 503, 529})
"""HTTP statuses of a busy provider, for a `ModelHTTPError` of none of the classes above."""

_TRANSIENT = (ModelRateLimitError, ModelUnavailableError, ModelServerError, ModelConnectionError, ModelRequestTimeout)


class Failure(NamedTuple):
    """The public reason of a task's failure."""

    kind: str
    """Stable name of the class, in the status message's metadata."""
    sentence: str
    """Sentence for the client, the same for every failure of the class."""
    last: bool = False
    """True if the task's further messages are not run."""


SHUTDOWN = Failure('shutdown', 'The server shut down before the task was done.', last=True)


EXPIRED_ATTEMPTS = Failure('attempts', 'The task was started too many times and never ended.')


ENGINE_FAILED = Failure('engine', 'The engine that ran the task has ended the run.')


CHANGED_AGENT = Failure('changed-agent', 'The agent was changed while the task was running.')


UNKNOWN = Failure('internal', 'The agent failed with an internal error.')


_BUSY = Failure('provider-busy', 'The model provider is busy; try again later.')


_CLASSES: tuple[tuple[type[BaseException], Failure], ...] = (
    (StoreFailed, Failure('storage', 'The store of the server failed.')),
    (NoModel, Failure('no-model', 'The agent has no model.')),
    (DownloadTimedOut, Failure('download', 'Files were not downloaded in time.')),
    (UsageLimitExceeded, Failure('usage-limit', 'The task reached its usage limit.')),
    (RunTimedOut, Failure('timeout', 'The task ran out of time.')),
    (ContentFilterError, Failure('refused-content', 'The model refused the content.')),
    (UnexpectedModelBehavior, Failure('bad-output', 'The model gave no usable answer.')),
    (ConcurrencyLimitExceeded, Failure('busy', 'The agent is busy; try again later.')),
    (ModelRateLimitError, _BUSY),
    (ModelQuotaExceededError, _BUSY),
    (ModelOverloadedError, _BUSY),
    (ModelUnavailableError, _BUSY),
    (ModelTimeoutError, _BUSY),
    (ModelAPIError, Failure('provider-error', 'The model provider failed.')),
)


class EngineFailure(Exception):
    """A failure of a run as an engine stores it: the fields of a `Failure`, and the usage, if known."""


def classify(error: BaseException) -> Failure:
    """Return the failure of an exception: the first matching class, else an internal error."""
    if isinstance(error, BaseExceptionGroup):  # such as a FallbackModel's: the error of the last model
        group = cast('BaseExceptionGroup[BaseException]', error)
        return classify(group.exceptions[-1])
    if isinstance(error, EngineFailure):
        return Failure(*error.args[:3])
    if isinstance(error, BadInput):
        return Failure('bad-input', str(error))
    if isinstance(error, FileRefused):
        return Failure('refused-file', str(error))
    if isinstance(error, ToolConflict):
        return Failure('tool-conflict', str(error))
    if isinstance(error, ModelHTTPError) and error.status_code in _BUSY_STATUSES:
        return _BUSY
    return next((failure for kind, failure in _CLASSES if isinstance(error, kind)), UNKNOWN)


def is_transient(error: BaseException) -> bool:
    """Return whether the same request to the model may succeed later: the provider was busy, down or unreachable."""
    if isinstance(error, BaseExceptionGroup):  # a FallbackModel's: one of its models may answer then
        return any(map(is_transient, cast('BaseExceptionGroup[BaseException]', error).exceptions))
    if isinstance(error, ModelHTTPError) and (error.status_code in (408, 429) or error.status_code >= 500):
        return not isinstance(error, ModelQuotaExceededError)
    return isinstance(error, _TRANSIENT)


def retry_after(error: BaseException) -> float:
    """Return the seconds that the provider has asked to wait, the soonest of several providers; 0 for none."""
    if isinstance(error, BaseExceptionGroup):
        errors = filter(is_transient, cast('BaseExceptionGroup[BaseException]', error).exceptions)
        return min(map(retry_after, errors), default=0.0)
    return (isinstance(error, ModelAPIError) and error.retry_after) or 0.0
