from __future__ import annotations

import pytest
from pydantic_ai.exceptions import (
    ConcurrencyLimitExceeded,
    ContentFilterError,
    ModelAPIError,
    ModelHTTPError,
    ModelRateLimitError,
    RunTimedOut,
    UnexpectedModelBehavior,
    UsageLimitExceeded,
)

from pydantic_ai_a2a.conversion.stream import classify
from pydantic_ai_a2a.errors import StoreFailed

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
def test_a_failure_has_a_class_and_a_sentence_without_the_error_text(error: BaseException, kind: str) -> None:
    failure = classify(error)
    assert failure.kind == kind
    assert SECRET not in failure.sentence
