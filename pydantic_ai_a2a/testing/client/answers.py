"""Scripted answers to the approvals, questions and sign-ins of an agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fasta2a.schema import Message, Part, Task

from ...client.following import STOPPED, WAITING
from ...conversion.remote_calls import open_calls
from ...remote.waiting import PendingRemoteCall, WaitingTask, answer_to, text_of, waiting_task

__all__ = ('Answers', 'Script', 'status_of')

_MOST_ROUNDS = 100
"""Most answers to one task."""


class Answers:
    """The answers of a person to an agent, written in advance.

    The test fails if the agent asks about another call, or never asks about one of these calls.

    Args:
        calls: The answer to each call that waits, by the name of the tool: True or False, or `ToolApproved` or
            `ToolDenied`, for an approval; text or data for a question; True for a sign-in. A function takes the
            `PendingRemoteCall` and returns the answer.
        question: The answer to a question of the agent itself, outside of tools. Default: the agent must not ask.
    """

    def __init__(self, calls: Mapping[str, Any] | None = None, *, question: Any = None) -> None:
        self.calls: Mapping[str, Any] = dict(calls or {})
        self.question = question


class Script:
    """Answers the questions of one task.

    Args:
        answers: The answers. None: a waiting task gets no answer.
    """

    def __init__(self, answers: Answers | None) -> None:
        self._answers = answers
        self._asked: set[str] = set()
        self._rounds = 0

    def parts(self, outcome: Task | Message | None) -> list[Part] | None:
        """Return the answer to a task that waits; None if the task does not wait.

        Raises:
            AssertionError: An answer is missing, or the task has ended without a question.
        """
        if self._answers is None:
            return None
        if outcome is None or 'status' not in outcome:
            self._check(self._answers, 'The agent has answered without a task.')
            return None
        state = outcome['status']['state']
        if state in WAITING:
            return self._answer(self._answers, waiting_task('', outcome))
        if state in STOPPED:
            self._check(self._answers, status_of(outcome))
        return None

    def _answer(self, answers: Answers, waiting: WaitingTask) -> list[Part]:
        self._rounds += 1
        if self._rounds > _MOST_ROUNDS:
            raise AssertionError(f'The agent still asks after {_MOST_ROUNDS} answers: {waiting["text"]!r}.')
        calls: list[PendingRemoteCall] = open_calls(waiting) or waiting['pending']
        if not calls:
            return self._parts(waiting, self._answer_of_question(answers, waiting))
        values = {call['id']: self._answer_of_call(answers, call) for call in calls}
        return self._parts(waiting, values if open_calls(waiting) else all(values.values()))

    def _answer_of_question(self, answers: Answers, waiting: WaitingTask) -> Any:
        if answers.question is None:
            raise AssertionError(f'No answer to the question {waiting["text"]!r}. Add `question=` to Answers.')
        return answers.question

    def _answer_of_call(self, answers: Answers, call: PendingRemoteCall) -> Any:
        tool = call['tool']
        if tool not in answers.calls:
            raise AssertionError(
                f'No answer to the {call["kind"]} {tool!r} with the arguments {call.get("args")}. Add {tool!r} to'
                ' Answers.'
            )
        self._asked.add(tool)
        answer = answers.calls[tool]
        return answer(call) if callable(answer) else answer

    def _parts(self, waiting: WaitingTask, value: Any) -> list[Part]:
        answer = answer_to(waiting, value)
        if 'denied' in answer:
            raise AssertionError(f'{value!r} is no answer to {waiting["text"]!r}. Cancel the task with `cancel`.')
        return answer.get('parts', [])

    def _check(self, answers: Answers, end: str) -> None:
        if unasked := sorted(answers.calls.keys() - self._asked):
            raise AssertionError(f'The agent has not asked about {", ".join(unasked)}. {end}')


def status_of(task: Task) -> str:
    """Return the state and the status message of a task, as a sentence."""
    status = task['status']
    text = text_of(message['parts']) if (message := status.get('message')) is not None else ''
    return f'The task is {status["state"]}{f": {text!r}" if text else ""}.'
