"""Tests of what a task takes in each of its states."""

from __future__ import annotations

from typing import get_args

import pytest

from pydantic_ai_a2a.errors import InvalidParamsError, TaskNotCancelableError, UnsupportedOperationError
from pydantic_ai_a2a.task_states import (
    INTERRUPTED,
    LIVE,
    STOPPED,
    TERMINAL,
    check_cancel,
    check_message,
    check_subscribe,
)
from pydantic_ai_a2a.types import TaskHeader, TaskState

STATES: list[TaskState] = [*get_args(TaskState)]


def task(state: TaskState) -> TaskHeader:
    return TaskHeader(
        id='t',
        context_id='c',
        owner='/',
        state=state,
        status_at=0,
        status_message=None,
        metadata=None,
        last_event=0,
    )


def test_each_state_is_live_interrupted_or_terminal() -> None:
    assert sorted([*LIVE, *INTERRUPTED, *TERMINAL]) == sorted(STATES)
    assert STOPPED == INTERRUPTED | TERMINAL


@pytest.mark.parametrize('state', sorted(TERMINAL))
def test_terminal_task_refuses_messages_subscribers_and_cancel(state: TaskState) -> None:
    with pytest.raises(UnsupportedOperationError, match=f'The task is {state} and accepts no more messages'):
        check_message(task(state), None)
    with pytest.raises(UnsupportedOperationError, match=f'The task is {state} and has no more events'):
        check_subscribe(task(state))
    with pytest.raises(TaskNotCancelableError):
        check_cancel(task(state))


@pytest.mark.parametrize('state', sorted(LIVE | INTERRUPTED))
@pytest.mark.parametrize('context_id', [None, 'c'])
def test_unfinished_task_accepts_messages_subscribers_and_cancel(state: TaskState, context_id: str | None) -> None:
    check_message(task(state), context_id)
    check_subscribe(task(state))
    check_cancel(task(state))


@pytest.mark.parametrize('state', sorted(LIVE))
def test_live_task_refuses_message_for_waiting_task(state: TaskState) -> None:
    with pytest.raises(UnsupportedOperationError, match=f'The task is {state} and takes messages only while it waits'):
        check_message(task(state), None, only_waiting=True)
    for waiting in INTERRUPTED:
        check_message(task(waiting), None, only_waiting=True)


@pytest.mark.parametrize('state', sorted(LIVE | INTERRUPTED))
def test_answer_to_pause_is_refused_after_next_event(state: TaskState) -> None:
    waits = task(state)
    check_message(waits, None, pause=waits.last_event)
    with pytest.raises(UnsupportedOperationError, match=f'The task is {state}, and no longer waits for this answer'):
        check_message(waits, None, pause=waits.last_event - 1)


@pytest.mark.parametrize('state', STATES)
def test_message_cannot_move_task_to_another_context(state: TaskState) -> None:
    with pytest.raises(InvalidParamsError) as refused:
        check_message(task(state), 'another')
    assert [violation.field for violation in refused.value.violations] == ['message.contextId']
