"""Tests of plain values, and of what a task takes in each of its states."""

from __future__ import annotations

from dataclasses import field, replace
from typing import Any, get_args

import pytest

from pydantic_ai_a2a.errors import InvalidParamsError, TaskNotCancelableError, UnsupportedOperationError
from pydantic_ai_a2a.types import (
    INTERRUPTED,
    LIVE,
    STOPPED,
    TERMINAL,
    TaskHeader,
    TaskState,
    check_cancel,
    check_message,
    check_subscribe,
    frozen,
)


@frozen
class Point:
    x: int = 0
    y: int
    secret: str = field(default='', repr=False)
    note: str = field(default='', compare=False)


@frozen
class Other:
    y: int


def test_a_value_is_equal_to_a_value_of_the_same_class_with_the_same_fields() -> None:
    point = Point(y=1, secret='a')
    assert point == Point(x=0, y=1, secret='a', note='not compared')
    assert point != replace(point, y=2)
    assert point != replace(point, secret='b')
    assert Other(y=1) != Point(y=1)


def test_a_value_shows_its_fields_without_secrets() -> None:
    assert repr(Point(y=1, secret='a')) == "Point(x=0, y=1, note='')"


def test_a_value_has_only_its_fields_and_no_hash() -> None:
    point: Any = Point(y=1)
    with pytest.raises(AttributeError):
        point.z = 3
    with pytest.raises(TypeError, match='unhashable'):
        hash(point)
    make: Any = Point
    with pytest.raises(TypeError, match='positional'):
        make(1, 2)


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


def test_each_state_is_live_interrupted_or_terminal_and_only_one_of_them() -> None:
    assert sorted([*LIVE, *INTERRUPTED, *TERMINAL]) == sorted(STATES)
    assert STOPPED == INTERRUPTED | TERMINAL


@pytest.mark.parametrize('state', sorted(TERMINAL))
def test_a_terminal_task_takes_nothing(state: TaskState) -> None:
    with pytest.raises(UnsupportedOperationError, match=f'The task is {state} and accepts no more messages'):
        check_message(task(state), None)
    with pytest.raises(UnsupportedOperationError, match=f'The task is {state} and has no more events'):
        check_subscribe(task(state))
    with pytest.raises(TaskNotCancelableError):
        check_cancel(task(state))


@pytest.mark.parametrize('state', sorted(LIVE | INTERRUPTED))
@pytest.mark.parametrize('context_id', [None, 'c'])
def test_a_task_that_has_not_ended_takes_messages_readers_and_a_cancel(
    state: TaskState, context_id: str | None
) -> None:
    check_message(task(state), context_id)
    check_subscribe(task(state))
    check_cancel(task(state))


@pytest.mark.parametrize('state', sorted(LIVE))
def test_a_task_that_waits_for_nothing_takes_no_message_that_is_only_for_one_that_does(state: TaskState) -> None:
    with pytest.raises(UnsupportedOperationError, match=f'The task is {state} and takes messages only while it waits'):
        check_message(task(state), None, only_waiting=True)
    for waiting in INTERRUPTED:
        check_message(task(waiting), None, only_waiting=True)


@pytest.mark.parametrize('state', sorted(LIVE | INTERRUPTED))
def test_a_message_for_a_pause_is_taken_until_the_next_event(state: TaskState) -> None:
    waits = task(state)
    check_message(waits, None, pause=waits.last_event)
    with pytest.raises(UnsupportedOperationError, match=f'The task is {state}, and no longer waits for this answer'):
        check_message(waits, None, pause=waits.last_event - 1)


@pytest.mark.parametrize('state', STATES)
def test_a_message_cannot_take_a_task_into_another_context(state: TaskState) -> None:
    with pytest.raises(InvalidParamsError) as refused:
        check_message(task(state), 'another')
    assert [violation.field for violation in refused.value.violations] == ['message.contextId']
