"""Scripted answers to the approvals, questions and sign-ins of an agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..client.answer_content import status_message
from ..client.question_answers import answer_to
from ..client.questions import PendingRemoteCall, RemoteQuestion
from ..client.results import OutputT, RemoteResult
from ..task_states import STOPPED
from ..wire.extensions.remote_calls import open_calls

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

    async def complete(self, result: RemoteResult[OutputT]) -> RemoteResult[OutputT]:
        """Answer the questions of a task until the task ends, also for results of an `A2AClient`.

        Raises:
            AssertionError: The agent asks about a call without an answer, or does not ask about a call.
        """
        script = Script(self)
        result = await script.complete(result)
        script.check(result)
        return result


class Script:
    """Answers the questions of tasks, and notes which calls they have asked about.

    Args:
        answers: The answers.
    """

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._asked: set[str] = set()
        self._rounds = 0

    async def complete(self, result: RemoteResult[OutputT]) -> RemoteResult[OutputT]:
        """Answer the questions of a task until the task ends.

        Raises:
            AssertionError: An answer is missing.
        """
        self._rounds = 0
        while (value := self.answer(result)) is not None:
            result = await result.answer(value)
        return result

    def check(self, result: RemoteResult) -> None:
        """Check that the tasks have asked about all calls, at the end of the last task.

        Raises:
            AssertionError: The tasks have not asked about a call.
        """
        unasked = self._answers.calls.keys() - self._asked
        if unasked and (result.state is None or result.state in STOPPED):
            raise AssertionError(f'The agent has not asked about {", ".join(sorted(unasked))}. {status_of(result)}')

    def answer(self, result: RemoteResult) -> Any:
        """Return the answer to a task that waits; None if the task does not wait.

        Raises:
            AssertionError: An answer is missing.
        """
        if (waiting := result.waiting) is None or _waits_for_owner(waiting):
            return None
        self._rounds += 1
        if self._rounds > _MOST_ROUNDS:
            raise AssertionError(f'The agent still asks after {_MOST_ROUNDS} answers: {waiting["text"]!r}.')
        calls: list[PendingRemoteCall] = open_calls(waiting) or waiting['pending']
        values = {call['id']: self._answer_of_call(call) for call in calls}
        value = values if open_calls(waiting) else all(values.values()) if calls else self._answer_of_question(waiting)
        if 'denied' in answer_to(waiting, value):
            raise AssertionError(f'{value!r} is no answer to {waiting["text"]!r}. Cancel the task with `cancel`.')
        return value

    def _answer_of_question(self, waiting: RemoteQuestion) -> Any:
        if self._answers.question is None:
            raise AssertionError(f'No answer to the question {waiting["text"]!r}. Add `question=` to Answers.')
        return self._answers.question

    def _answer_of_call(self, call: PendingRemoteCall) -> Any:
        tool = call['tool']
        if tool not in self._answers.calls:
            unused = sorted(self._answers.calls.keys() - self._asked)
            raise AssertionError(
                f'No answer to the {call["kind"]} {tool!r} with the arguments {call.get("args")}. Add {tool!r} to'
                f' Answers.{f" Not used so far: {unused}." if unused else ""}'
            )
        self._asked.add(tool)
        answer = self._answers.calls[tool]
        return answer(call) if callable(answer) else answer


def _waits_for_owner(waiting: RemoteQuestion) -> bool:
    """Return True for a task of another owner that asks only its owner, which an approver does not see."""
    return waiting['task'] == waiting['context'] and not waiting['text'] and not waiting['pending']


def status_of(result: RemoteResult) -> str:
    """Return the state and the status message of a task, as a sentence."""
    if result.task is None:
        return 'The agent has answered without a task.'
    text, _ = status_message(result.task)
    return f'The task is {result.state}{f": {text!r}" if text else ""}.'
