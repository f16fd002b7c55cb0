"""A conversation with a remote agent: messages, answers to questions, and Ctrl-C."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Self, cast
from uuid import uuid4

import click

from ..backoff import backoff
from ..client.agents.remote_tasks import RemoteTasks
from ..client.answer_content import answer_parts, partial_text
from ..client.interfaces import extensions_of
from ..client.questions import for_caller
from ..client.remote_urls import shown_url
from ..client.updates import Update
from ..errors import A2AError, InvalidParamsError, RemoteError, RemoteUnavailable, UnsupportedOperationError
from ..task_states import INTERRUPTED, STOPPED, TERMINAL
from ..types.a2a_objects import Message, Part, Task
from ..wire.extensions.pending_calls_extension import PENDING_CALLS_URI
from .answer_prompts import open_approvals, prompt_for_answer, show_calls
from .client_thread import ClientThread
from .exit_codes import CTRL_C, WAITS
from .json_options import Form
from .plain_screen import question_to_show
from .remote_agent import Remote
from .saved_files import make_directory, remove_empty, save_files
from .screen_choice import screen_for
from .task_calls import TaskCalls
from .terminal import safe, say

QUEUED = 10.0
"""Seconds after which a task that has not begun is reported."""


PAUSES = (0.5, 3.0)
"""The first and the longest pause between two looks at a task that waits for an approver, in seconds."""


class Talk:
    """A conversation with a remote agent.

    Args:
        remote: The agent.
        form: How answers are written.
        hints: True to say after each answer how to go on.
        save: Directory for the files of the last answer, made here. Default: they are not saved.

    Raises:
        UsageError: The directory cannot be made.
    """

    def __init__(self, remote: Remote, form: Form = 'text', *, hints: bool = True, save: Path | None = None) -> None:
        self._made = [] if save is None else make_directory(save)
        self._thread = ClientThread(TaskCalls(remote))
        self._client = self._thread.client
        self._url = shown_url(remote.url)
        self._form: Form = form
        self._hints = hints
        self._save = save
        self._asks = sys.stdin.isatty() and sys.stderr.isatty()
        self._task: Task | None = None
        self.context_id: str | None = None
        """The conversation of the last answer."""

    def __enter__(self) -> Self:
        self._thread.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.__exit__()
        remove_empty(self._made)

    def send(self, parts: Sequence[Part], *, task_id: str = '', context_id: str = '') -> int:
        """Send a message, show the answer, and ask the questions of the agent. Return the exit code.

        Ctrl-C cancels the task.
        """
        self._task = None
        try:
            message = Message(role='user', parts=[*parts], message_id=uuid4().hex)
            outcome = self._follow(message, task_id, context_id)
            while self._asks and 'status' in outcome and outcome['status']['state'] in INTERRUPTED:
                outcome = self._answered(outcome)
        except (KeyboardInterrupt, click.Abort):
            return self._interrupted()
        except (A2AError, RemoteUnavailable):
            if (task := self._task) is not None and task['status']['state'] not in STOPPED:
                say(f'the task {task["id"]} may go on; follow it with `pydantic-ai-a2a watch {self._url} {task["id"]}`')
            raise
        return self._ended(outcome)

    def decide(self, task_id: str, *, arguments: dict[str, Any] | None, denial: str | None) -> int:
        """Approve or deny the waiting calls of a task, and go on as `send`. Return the exit code.

        Args:
            task_id: The task.
            arguments: Arguments of the one call instead of the agent's; None to leave them.
            denial: Reason of a denial, perhaps empty; None to approve.

        Raises:
            ClickException: No call waits for an approval, or the arguments cannot be changed.
        """
        from pydantic_ai.exceptions import UserError  # noqa: PLC0415 - messages need no Pydantic AI
        from pydantic_ai.tools import ToolApproved, ToolDenied  # noqa: PLC0415

        from ..client.question_answers import answer_to  # noqa: PLC0415

        decision = ToolApproved(override_args=arguments) if denial is None else ToolDenied(denial) if denial else False
        task = self._thread.run(partial(self._client.get, task_id))
        calls = open_approvals(waiting := question_to_show(task))
        if not calls:
            raise click.ClickException(f'No call of the task {task_id} waits for an approval.')
        if len(calls) > 1 and arguments is not None:
            raise click.ClickException(f'--data changes the arguments of one call, but {len(calls)} calls wait.')
        try:
            answer = answer_to(waiting, {call['id']: decision for call in calls})
        except UserError as error:
            raise click.ClickException(safe(str(error))) from None
        return self.send(answer.get('parts', []), task_id=task_id, context_id=task['context_id'])

    def watch(self, task_id: str) -> int:
        """Show the events of a task until it stops. Return the exit code. Ctrl-C ends only the command."""
        try:
            outcome = self._thread.run(lambda: self._show(self._client.subscribe(task_id)))
        except KeyboardInterrupt:
            say(f'the task {task_id} goes on')
            return CTRL_C
        return self._ended(outcome)

    def _answered(self, task: Task) -> Task | Message:
        """Ask for the answers of a waiting task. Return the task after the answers, or as it is now if refused."""
        from ..client.question_answers import answer_message  # noqa: PLC0415 - messages need no Pydantic AI

        if self._may_need_approver(task):  # GetTask says for sure who decides
            now = self._thread.run(partial(self._undecided, task['id']))
            if now['status']['state'] not in INTERRUPTED:
                return self._rest(task)
            task = now
        waiting = for_caller(question_to_show(task))
        assert waiting is not None, 'something waits for this person'
        answer = prompt_for_answer(waiting)
        if 'denied' in answer:
            return self._thread.run(partial(self._client.cancel, task['id']))
        try:
            message = answer_message(waiting, answer)
            return self._follow(message, task['id'], task['context_id'], before=partial_text(task))
        except (InvalidParamsError, UnsupportedOperationError) as error:
            say(f'the agent refuses the answer: {error.message}')
            now = self._thread.run(partial(self._client.get, task['id']))
            return now if now['status']['state'] in INTERRUPTED else self._rest(task)

    def _may_need_approver(self, task: Task) -> bool:
        """Return False if the approvals of a task say that this person decides, and for agents without approvers."""
        if all(call.get('decidedBy') == 'caller' for call in open_approvals(question_to_show(task))):
            return False
        card = self._thread.run(self._client.card)
        return _waits_for_approver(task) or PENDING_CALLS_URI in extensions_of(card)

    async def _undecided(self, task_id: str) -> Task:
        """Return a task once it does not wait, or waits for this person, and not for an approver alone."""
        task, pauses = await self._client.get(task_id), backoff(*PAUSES)
        if _waits_for_approver(task):
            show_calls(question_to_show(task))
            say(f'the task {task_id} waits for an approver; Ctrl-C cancels the task')
        while _waits_for_approver(task):
            await asyncio.sleep(next(pauses))
            task = await self._client.get(task_id)
        return task

    def _rest(self, task: Task) -> Task | Message:
        """Follow a task that has gone on without an answer of this person."""
        return self._shown(self._client.subscribe(task['id']), partial_text(task))

    def _follow(self, message: Message, task_id: str, context_id: str, before: str = '') -> Task | Message:
        if context_id:
            message['context_id'] = context_id
        if task_id:
            message['task_id'] = task_id
        return self._shown(self._client.stream(message), before)

    def _shown(self, updates: AsyncGenerator[Update, None], before: str) -> Task | Message:
        return self._thread.run(lambda: self._show(RemoteTasks(self._client).follow(updates), before))

    async def _show(self, updates: AsyncGenerator[Update, None], before: str = '') -> Task | Message:
        screen = screen_for(self._form, before)
        queued: asyncio.TimerHandle | None = None
        try:
            update: Update | None = None
            async with aclosing(updates):
                async for update in updates:
                    if queued is None and self._task is None:
                        queued = asyncio.get_running_loop().call_later(QUEUED, self._report_queued)
                    self._task = None if update.state is None else cast('Task', update.head)
                    screen.show(update)
            assert update is not None, 'a stream has an event'
            outcome = update.outcome
            screen.end(outcome, is_asked=self._asks)
            return outcome
        finally:
            if queued is not None:
                queued.cancel()
            screen.close()

    def _report_queued(self) -> None:
        if self._task is not None and self._task['status']['state'] == 'submitted':
            say(f'the task {self._task["id"]} has been queued for {QUEUED:.0f} seconds: is a worker running?')

    def _ended(self, outcome: Task | Message) -> int:
        """Save the files, and say how to go on. Return the exit code."""
        self.context_id = outcome.get('context_id')
        parts = [*chain.from_iterable(answer_parts(outcome))]
        are_saved = self._save is None or save_files(parts, self._save)
        if 'status' not in outcome:
            return int(not are_saved)
        state = outcome['status']['state']
        is_hidden = outcome['context_id'] == outcome['id']  # the conversation, from approvers
        context = '' if is_hidden else f' --context {outcome["context_id"]}'
        if state in INTERRUPTED:
            if _waits_for_approver(outcome):
                say(f'the task {outcome["id"]} waits for an approver')
                return WAITS
            how = (
                '; approve with --approve, deny with --deny REASON' if open_approvals(question_to_show(outcome)) else ''
            )
            say(f'the task waits; answer with --task {outcome["id"]}{context}{how}')
            return WAITS
        if self._hints or state != 'completed':
            how = f'; go on with{context}' if context else '' if parts else '; its owner gets the answer'
            say(f'the task {outcome["id"]} is {state}{how}')
        return int(state != 'completed' or not are_saved)

    def _interrupted(self) -> int:
        """Cancel the task, and say so."""
        task = self._task
        if task is None:
            say('interrupted before the agent has named its task')
            return CTRL_C
        self.context_id = task['context_id']
        try:
            latest = self._thread.run(partial(self._client.get, task['id'], history_length=0))
            if latest['status']['state'] not in TERMINAL:  # the task waits; a running task is canceled already
                latest = self._thread.run(partial(self._client.cancel, task['id']))
        except (A2AError, RemoteError) as error:
            say(f'the task {task["id"]} could not be canceled: {error!s}')
        else:
            say(f'the task {task["id"]} is {latest["status"]["state"]}')
        return CTRL_C


def _waits_for_approver(task: Task) -> bool:
    return task['status']['state'] in INTERRUPTED and for_caller(question_to_show(task)) is None
