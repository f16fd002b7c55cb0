"""Failures of workflows and activities: from exceptions of a run to the failures that Temporal stores, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic_ai.messages import ModelMessage
from temporalio import exceptions
from temporalio.client import WorkflowFailureError

from ..errors import FileRefused
from ..server.agent.refused_files import check_files
from ..server.conversion.failures import CHANGED_AGENT, ENGINE_FAILED, UNKNOWN, EngineFailure, classify
from .temporal_names import FAILED, NAME

_NONDETERMINISM = '[TMPRL1100]'
"""Temporal's number of the error, which begins its text."""


def failure_of(failed: WorkflowFailureError) -> Exception:
    """Return the failure of a run: the failure that the workflow or an activity has named, if any."""
    if (named := named_failure(failed.cause, FAILED)) is not None:
        return EngineFailure(*named.details)
    return EngineFailure(*(CHANGED_AGENT if _NONDETERMINISM in str(failed.cause) else ENGINE_FAILED))


def named_failure(error: BaseException | None, name: str) -> exceptions.ApplicationError | None:
    """Return the failure with the name of a type, among the causes of an error; None without one."""
    while error is not None and not (isinstance(error, exceptions.ApplicationError) and error.type == name):
        error = error.__cause__
    return error


def classified_failure(error: BaseException | None) -> Sequence[Any] | None:
    """Return the failure that an activity has named, for the error that ends a run; None for another error."""
    if (named := named_failure(error, FAILED)) is not None:
        return named.details[:3]
    cause = error.cause if isinstance(error, exceptions.ActivityError) else None
    details = cause.details if isinstance(cause, exceptions.ApplicationError) else ()
    return details[1:4] if details[:1] == (NAME,) else None


def with_failure(error: Exception, arguments: Sequence[Any]) -> Exception | None:
    """Return an error of an activity together with its failure; None for an error without a known failure.

    A workflow gets only the name of the error's class. Retries depend on that name and on the delay, so both stay.
    """
    raised = error
    if isinstance(error, exceptions.ApplicationError):  # of Pydantic AI, for an error that it does not try again
        if error.details or not isinstance(error.__cause__, Exception):
            return None
        raised = error.__cause__
    else:
        error = exceptions.ApplicationError(str(error), type=type(error).__name__)
    failure = classify(_of_files(raised, arguments))
    if failure == UNKNOWN:
        return None
    return exceptions.ApplicationError(
        error.message,
        NAME,
        *failure,
        type=error.type,
        non_retryable=error.non_retryable,
        next_retry_delay=error.next_retry_delay,
    )


def _of_files(error: Exception, arguments: Sequence[Any]) -> Exception:
    """Return an error of an activity, or the `FileRefused` in its place for a request to a model with files."""
    messages: Sequence[ModelMessage] = getattr(arguments[0], 'messages', ()) if arguments else ()
    try:
        if messages:
            check_files(error, messages, messages[-1])
    except FileRefused as refused:
        return refused
    return error


def as_failure(name: str, *details: Any, **options: Any) -> exceptions.ApplicationError:
    """Return an error of a workflow or activity that Temporal does not try again."""
    return exceptions.ApplicationError('', *details, type=name, non_retryable=True, **options)


def changed_agent() -> exceptions.ApplicationError:
    """Return the failure of a run whose steps the agent of this process does not have. The server logs it."""
    return as_failure(FAILED, *CHANGED_AGENT, category=exceptions.ApplicationErrorCategory.BENIGN)
