"""The commands `send`, `watch` and `chat`: conversations with a remote agent."""

from __future__ import annotations

import asyncio
import json
import mimetypes
import sys
import threading
from base64 import b64encode
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, aclosing
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self, TypeVar, cast

import click
from anyio.from_thread import start_blocking_portal
from pydantic_ai.exceptions import UserError
from pydantic_ai.tools import ToolApproved, ToolDenied

from ..client.answer_content import partial_text
from ..client.client import A2AClient
from ..client.questions import PendingRemoteCall, RemoteAnswer, RemoteQuestion, answer_to
from ..client.send_options import SendOptions
from ..client.updates import Update
from ..client.urls import shown
from ..conversion.remote_calls import open_calls, wanted_schema
from ..errors import A2AError, InvalidParamsError, RemoteError, RemoteUnavailable
from ..remote.remote_tasks import RemoteTasks
from ..types import INTERRUPTED, STOPPED, TERMINAL, Message, Part, Task
from .cli import CTRL_C
from .remote import Remote, agent_options
from .screens import Form, json_options, question_of, screen_for
from .terminal import ask, echo, safe, say

WAITS = 3
"""Exit code for a waiting task, without a terminal for the answer."""

# --- the command `send` -----------------------------------------------------------------------------------------------


@click.command()
@agent_options
@click.argument('text', required=False)
@click.option(
    '--file',
    'files',
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar='FILE',
    help='Attach a file. Can be repeated.',
)
@click.option('--data', metavar='JSON', help='Attach a JSON value.')
@click.option('--context', default='', metavar='ID', help='Conversation that the message continues.')
@click.option('--task', default='', metavar='ID', help='Task that the message answers or continues.')
@click.option('--approve', is_flag=True, help='Approve the calls of --task. --data changes the arguments of one call.')
@click.option('--deny', metavar='REASON', help='Deny the calls of --task. "" gives no reason.')
@json_options
def send(
    *,
    remote: Remote,
    text: str | None,
    files: Sequence[Path],
    data: str | None,
    context: str,
    task: str,
    approve: bool,
    deny: str | None,
    form: Form,
) -> int:
    """Send a message to an agent, and show the answer.

    URL is the agent or its card. The answer is shown as it comes.

    TEXT is the message, or - for standard input. In a terminal, the command asks for approvals and answers.

    Exit codes: 0 completed, 1 failed or refused, 3 the task waits for an answer, 130 after Ctrl-C, which cancels
    the task.
    """
    if approve or deny is not None:
        if not task or text or files or (deny is not None and (approve or data is not None)):
            raise click.UsageError('Give --task with either --approve, and --data if you like, or --deny alone.')
        arguments = None if data is None else _json(data)
        if not isinstance(arguments, dict | None):
            raise click.UsageError('--data takes a JSON object: the arguments of the call.')
        denial = ToolDenied(deny) if deny else False
        with Talk(remote, form) as talk:
            return talk.decide(task, ToolApproved(override_args=cast('Any', arguments)) if approve else denial)
    parts = [*_text(text), *_data(data), *map(_file, files)]
    if not parts:
        raise click.UsageError('There is nothing to send: give TEXT, --file or --data.')
    with Talk(remote, form) as talk:
        return talk.send(parts, task_id=task, context_id=context)


def _text(text: str | None) -> list[Part]:
    words = sys.stdin.read() if text == '-' else text
    return [Part(text=words)] if words else []


def _data(data: str | None) -> list[Part]:
    return [] if data is None else [Part(data=_json(data), media_type='application/json')]


def _json(data: str) -> Any:
    try:
        return json.loads(data)
    except ValueError as error:
        raise click.UsageError(f'--data is not JSON: {error}.') from None


def _file(path: Path) -> Part:
    media_type = mimetypes.guess_type(path.name)[0] or 'application/octet-stream'
    return Part(raw=b64encode(path.read_bytes()).decode(), media_type=media_type, filename=path.name)


@click.command()
@agent_options
@click.argument('task_id', metavar='TASK')
@json_options
def watch(*, remote: Remote, task_id: str, form: Form) -> int:
    """Show the events of a task until it stops.

    URL is the agent or its card. A task stops when it has ended or waits for its client.

    The exit codes are the same as those of `send`. After Ctrl-C, the task continues.
    """
    with Talk(remote, form) as talk:
        return talk.watch(task_id)


# --- the command `chat` -----------------------------------------------------------------------------------------------


_HELP = '/new begins a new conversation, /help shows this, /exit ends, and Ctrl-C cancels the running task'


@click.command()
@agent_options
@click.option('--context', default='', metavar='ID', help='Conversation to continue.')
def chat(*, remote: Remote, context: str) -> int:
    """Talk with an agent, one line a message.

    URL is the agent or its card.

    /new begins a new conversation, /help shows this, /exit or Ctrl-D ends the command. Ctrl-C cancels the running
    task, and at the prompt ends the command. Without a terminal, each line of standard input is a message.
    """
    read = _reader()
    with Talk(remote, hints=False) as talk:
        say(_HELP)
        while True:
            try:
                line = read().strip()
            except EOFError:
                return 0
            if line == '/exit':
                return 0
            if line == '/help':
                say(_HELP)
            elif line == '/new':
                context = ''
            elif line:
                code = talk.send([Part(text=line)], context_id=context)
                context = talk.context_id or ''
                if code == WAITS or (code == CTRL_C and not sys.stdin.isatty()):
                    return code


def _reader() -> Callable[[], str]:
    """Return a function that reads a line, with a history if the extra `cli` is installed."""
    if not sys.stdin.isatty():
        return _line
    try:
        from prompt_toolkit import PromptSession  # noqa: PLC0415 - of an extra
    except ImportError:
        return lambda: input('> ')
    session: PromptSession[str] = PromptSession()
    return lambda: session.prompt('> ')


def _line() -> str:
    if not (line := sys.stdin.readline()):
        raise EOFError
    return line


# --- questions to a person --------------------------------------------------------------------------------------------
# Asks a person for the answers to a waiting remote task.


def decide(waiting: RemoteQuestion) -> RemoteAnswer:
    """Ask for the answer to each pending call, or to the question of the agent itself.

    Raises:
        Abort: The person has pressed Ctrl-C or Ctrl-D.
    """
    calls: list[PendingRemoteCall] = open_calls(waiting)
    if calls:
        return answer_to(waiting, {call['id']: _answer(call) for call in calls})
    echo(waiting['text'], err=True)
    if waiting['state'] == 'auth-required':
        _show_sign_in(waiting)
        return answer_to(waiting, click.confirm('Have you signed in?', default=True, err=True))
    return answer_to(waiting, _value('Answer', waiting.get('schema', {'type': 'string'})))


def _approvals(waiting: RemoteQuestion) -> list[PendingRemoteCall]:
    return [call for call in open_calls(waiting) if call['kind'] == 'approval']


def _show_sign_in(waiting: RemoteQuestion) -> None:
    authorizations = [waiting.get('authorization', {}), *(call.get('metadata', {}) for call in waiting['pending'])]
    for authorization in authorizations:
        if url := authorization.get('url'):
            echo(f'Sign in at {url}', err=True)


def _answer(call: PendingRemoteCall) -> Any:
    echo(call['text'], err=True)
    schema = wanted_schema(call.get('answerSchema'))
    if call['kind'] != 'approval':
        return _value('Answer', schema or {})
    may_change = schema is not None and 'args' in call
    keys = ['y', 'n', 'e'] if may_change else ['y', 'n']
    text = 'Approve? [y]es, [n]o, [e]dit the arguments' if may_change else 'Approve? [y]es, [n]o'
    match ask(text, type=click.Choice(keys, case_sensitive=False), show_choices=False):
        case 'y':
            return True
        case 'e':
            echo(f'Arguments: {json.dumps(call.get("args"))}', err=True)
            return ToolApproved(override_args=_value('New arguments', {'type': 'object'}))
        case _:
            reason = ask('Reason', default='', show_default=False)
            return ToolDenied(reason) if reason else False


def _value(text: str, schema: Mapping[str, Any]) -> Any:
    """Ask for a value. Text stays unchanged; other values are JSON."""
    if isinstance(options := schema.get('enum'), list):
        echo(f'One of: {json.dumps(options)}', err=True)
    if schema.get('type') == 'string':
        return ask(text)
    hint = f' as JSON ({schema["type"]})' if isinstance(schema.get('type'), str) else ''
    while True:
        answer: str = ask(f'{text}{hint}')
        try:
            value: Any = json.loads(answer)
        except ValueError:
            if 'type' not in schema:  # any value: words are a value too
                return answer
            echo('This is not JSON. Write text in double quotes.', err=True)
            continue
        if schema.get('type') == 'object' and not isinstance(value, dict):
            echo('This is no object. Write {"name": value}.', err=True)
            continue
        return cast('Any', value)


# --- a conversation with a remote agent -------------------------------------------------------------------------------
# Messages, answers to questions, and Ctrl-C.
#
# The event loop runs in a thread of its own. The main thread waits for answers, asks at the prompt and gets Ctrl-C.

T = TypeVar('T')
WAKE = 1.0
"""Seconds after which the main thread handles a Ctrl-C that came just before the wait."""
_END = 15.0
"""Seconds for the cancellation of a task after Ctrl-C."""
QUEUED = 10.0
"""Seconds after which a task that has not begun is reported."""


class Talk:
    """A conversation with a remote agent.

    Args:
        remote: The agent.
        form: How answers are written.
        hints: True to say after each answer how to go on.
    """

    def __init__(self, remote: Remote, form: Form = 'text', *, hints: bool = True) -> None:
        self.client = A2AClient(
            remote.url,
            headers=remote.headers,
            auth=remote.token,
            timeout=remote.timeout,
            trusted_origins=remote.trusted_origins,
        )
        self._url = shown(remote.url)
        self._form: Form = form
        self._hints = hints
        self._asks = sys.stdin.isatty() and sys.stderr.isatty()
        self._exits = ExitStack()
        self._task: Task | None = None
        self.context_id: str | None = None
        """The conversation of the last answer."""

    def __enter__(self) -> Self:
        with ExitStack() as exits:
            self._portal = exits.enter_context(start_blocking_portal())
            exits.enter_context(self._portal.wrap_async_context_manager(self.client))
            self._exits = exits.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()

    def _run(self, function: Callable[[], Awaitable[T]]) -> T:
        """Call a function in the event loop. After Ctrl-C, cancel the function and wait for the end."""
        ended = threading.Event()

        async def call() -> T:
            try:
                return await function()
            finally:
                ended.set()

        future = self._portal.start_task_soon(call)
        try:
            while not ended.wait(WAKE) and not future.done():
                pass  # an endless wait would miss a Ctrl-C that comes just before the wait
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            ended.wait(_END)
            raise

    def send(self, parts: Sequence[Part], *, task_id: str = '', context_id: str = '') -> int:
        """Send a message, show the answer, and ask the questions of the agent. Return the exit code.

        Ctrl-C cancels the task.
        """
        self._task = None
        try:
            outcome = self._follow(parts, task_id, context_id)
            while self._asks and 'status' in outcome and outcome['status']['state'] in INTERRUPTED:
                outcome = self._answered(outcome)
        except (KeyboardInterrupt, click.Abort):
            return self._interrupted()
        except (A2AError, RemoteUnavailable):
            if (task := self._task) is not None and task['status']['state'] not in STOPPED:
                say(f'the task {task["id"]} may go on; follow it with `pydantic-ai-a2a watch {self._url} {task["id"]}`')
            raise
        return self._ended(outcome)

    def decide(self, task_id: str, decision: ToolApproved | ToolDenied | Literal[False]) -> int:
        """Approve or deny the waiting calls of a task, and go on as `send`. Return the exit code.

        Raises:
            ClickException: No call waits for an approval, or the arguments cannot be changed.
        """
        task = cast('Task', self._run(partial(self.client.get, task_id)).task)
        calls = _approvals(waiting := question_of(task))
        if not calls:
            raise click.ClickException(f'No call of the task {task_id} waits for an approval.')
        if len(calls) > 1 and isinstance(decision, ToolApproved) and decision.override_args is not None:
            raise click.ClickException(f'--data changes the arguments of one call, but {len(calls)} calls wait.')
        try:
            answer = answer_to(waiting, {call['id']: decision for call in calls})
        except UserError as error:
            raise click.ClickException(safe(str(error))) from None
        return self.send(answer.get('parts', []), task_id=task_id, context_id=task['context_id'])

    def watch(self, task_id: str) -> int:
        """Show the events of a task until it stops. Return the exit code. Ctrl-C ends only the command."""
        try:
            outcome = self._run(lambda: self._show(self.client.subscribe(task_id)))
        except KeyboardInterrupt:
            say(f'the task {task_id} goes on')
            return CTRL_C
        return self._ended(outcome)

    def _answered(self, task: Task) -> Task | Message:
        """Ask for the answers of a waiting task. Return the task after the answers, or as before if refused."""
        answer = decide(question_of(task))
        if 'denied' in answer:
            return self._run(partial(self.client.cancel, task['id'])).outcome
        try:
            return self._follow(answer.get('parts', []), task['id'], task['context_id'], before=partial_text(task))
        except InvalidParamsError as error:
            say(f'the agent refuses the answer: {error.message}')
            return task

    def _follow(self, parts: Sequence[Part], task_id: str, context_id: str, before: str = '') -> Task | Message:
        options = SendOptions(task_id=task_id, context_id=context_id)
        updates = self.client.stream(parts, **options)
        return self._run(lambda: self._show(RemoteTasks(self.client).follow(updates), before))

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
        """Say how to go on. Return the exit code."""
        self.context_id = outcome.get('context_id')
        if 'status' not in outcome:
            return 0
        state = outcome['status']['state']
        context = f'--context {outcome["context_id"]}'
        if state in INTERRUPTED:
            how = '; approve with --approve, deny with --deny REASON' if _approvals(question_of(outcome)) else ''
            say(f'the task waits; answer with --task {outcome["id"]} {context}{how}')
            return WAITS
        if self._hints or state != 'completed':
            say(f'the task {outcome["id"]} is {state}; go on with {context}')
        return int(state != 'completed')

    def _interrupted(self) -> int:
        """Cancel the task, and say so."""
        task = self._task
        if task is None:
            say('interrupted before the agent has named its task')
            return CTRL_C
        self.context_id = task['context_id']
        try:
            latest = self._run(partial(self.client.get, task['id'], history_length=0))
            if latest.state not in TERMINAL:  # the task waits; a running task is canceled already
                latest = self._run(partial(self.client.cancel, task['id']))
        except (A2AError, RemoteError) as error:
            say(f'the task {task["id"]} could not be canceled: {error!s}')
        else:
            say(f'the task {task["id"]} is {latest.state}')
        return CTRL_C
