"""What the suite of dead letters cannot know, because it knows no worker."""

from __future__ import annotations

from pydantic_ai_a2a.conversion.stream import EXPIRED_ATTEMPTS
from pydantic_ai_a2a.store.ports import DEAD_LETTER


def test_the_failure_that_makes_a_dead_letter_is_that_of_a_task_that_was_started_too_often() -> None:
    assert EXPIRED_ATTEMPTS.kind == DEAD_LETTER
