from __future__ import annotations

import pytest
from pydantic_ai.exceptions import (
    ConcurrencyLimitExceeded,
    ContentFilterError,
    FallbackExceptionGroup,
    ModelAPIError,
    ModelConnectionError,
    ModelHTTPError,
    ModelOverloadedError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestTimeout,
    ModelServerError,
    ModelTimeoutError,
    RunTimedOut,
    UnexpectedModelBehavior,
    UsageLimitExceeded,
)

from pydantic_ai_a2a.errors import StoreFailed
from pydantic_ai_a2a.server.conversion.failures import classify, is_transient, retry_after

from ...cases import each_case

SECRET = 'sk-secret'


@pytest.mark.parametrize(
    ('error', 'kind'),
    [
        (StoreFailed(SECRET), 'storage'),
        (ConcurrencyLimitExceeded(SECRET), 'busy'),
        (UsageLimitExceeded(SECRET), 'usage-limit'),
        (RunTimedOut(SECRET), 'timeout'),
        (ContentFilterError(SECRET), 'refused-content'),
        (UnexpectedModelBehavior(SECRET), 'bad-output'),
        (ModelRateLimitError(SECRET, SECRET), 'provider-busy'),
        (ModelAPIError(SECRET, SECRET), 'provider-error'),
        (ModelHTTPError(500, SECRET, SECRET), 'provider-error'),
        (ModelHTTPError(429, SECRET, SECRET), 'provider-busy'),
        (ModelHTTPError(503, SECRET, SECRET), 'provider-busy'),
        (ExceptionGroup(SECRET, [ModelHTTPError(429, SECRET, SECRET)]), 'provider-busy'),
        (ExceptionGroup(SECRET, [ValueError(SECRET), ModelAPIError(SECRET, SECRET)]), 'provider-error'),
        (ValueError(SECRET), 'internal'),
        (KeyboardInterrupt(SECRET), 'internal'),
    ],
)
def test_failure_has_kind_and_sentence_without_error_text(error: BaseException, kind: str) -> None:
    failure = classify(error)
    assert failure.kind == kind
    assert SECRET not in failure.sentence


@each_case(
    'error, transient',
    [
        (ModelHTTPError(408, 'model'), True),
        (ModelHTTPError(429, 'model'), True),
        (ModelHTTPError(500, 'model'), True),
        (ModelHTTPError(529, 'model'), True),
        (ModelRateLimitError('model', ''), True),
        (ModelOverloadedError('model', ''), True),
        (ModelServerError('model', ''), True),
        (ModelConnectionError('model', ''), True),
        (ModelTimeoutError('model', ''), True),
        (ModelRequestTimeout('model', 1.0), True),
        (FallbackExceptionGroup('', [ModelHTTPError(503, 'model'), ModelHTTPError(401, 'model')]), True),
        (FallbackExceptionGroup('', [ModelHTTPError(400, 'model'), ModelHTTPError(401, 'model')]), False),
        (ModelHTTPError(402, 'model'), False),
        (ModelHTTPError.for_category(ModelQuotaExceededError, status_code=429, model_name='model'), False),
        (ModelQuotaExceededError('model', ''), False),
        (ModelAPIError('model', ''), False),
        (UsageLimitExceeded(''), False),
        (RunTimedOut(''), False),
        (ValueError(''), False),
    ],
)
def test_temporary_model_errors_are_transient(error: Exception, transient: bool) -> None:
    assert is_transient(error) == transient


def test_retry_after_is_the_shortest_provider_delay() -> None:
    short, long = (ModelRateLimitError('model', '', retry_after=seconds) for seconds in (3.0, 9.0))
    never = ModelHTTPError(401, 'model')
    assert retry_after(short) == 3
    assert retry_after(FallbackExceptionGroup('', [never, long, short])) == 3
    assert retry_after(FallbackExceptionGroup('', [ModelHTTPError(503, 'model'), long])) == 0
    assert retry_after(FallbackExceptionGroup('', [never])) == 0
    assert retry_after(ConnectionError()) == 0
