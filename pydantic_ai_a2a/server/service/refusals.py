"""The errors that callers get instead of answers, and their audit lines."""

from __future__ import annotations

import logging

from ...errors import A2AError, AgentUnavailable, AgentUnusable, InternalError, StoreUnavailable
from ...types.callers import Caller
from ..audit import audit
from ..auth.request_info import RequestInfo

logger = logging.getLogger('pydantic_ai_a2a')

REASONS = 'pydantic_ai_a2a.reasons'
"""Key of the scope for a list of why the agent cannot be entered, if a test wants to know."""


def as_error(exception: BaseException, correlation_id: str) -> A2AError:
    """Return the error for the caller. An exception that is no `A2AError` is logged and becomes an internal error."""
    if isinstance(exception, StoreUnavailable):
        logger.warning('The store is unavailable (correlation id %s): %s', correlation_id, exception.detail)
    if isinstance(exception, AgentUnavailable):
        text = 'The agent is not ready, and a request is refused (correlation id %s). The server tries again.'
        logger.warning(text, correlation_id, exc_info=exception.__cause__)
    if isinstance(exception, AgentUnusable):
        text = 'The agent cannot be started, and a request is refused (correlation id %s).'
        logger.error(text, correlation_id, exc_info=exception.__cause__)
    if isinstance(exception, A2AError):
        return exception
    logger.error('Request failed (correlation id %s).', correlation_id, exc_info=exception)
    return InternalError()


def audit_refused(error: A2AError, request: RequestInfo, caller: Caller | None = None) -> None:
    """Record the refusal of a request, if the audit log lists refusals of its kind."""
    if error.refusal is None:
        return
    audit(
        'refused',
        correlation_id=request.correlation_id,
        remote=request.address,
        refusal=error.refusal,
        caller=(caller.id or None) if caller else None,
        tenant=(caller.tenant or None) if caller else None,
    )
