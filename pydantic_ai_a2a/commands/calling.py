"""The remote agent of a command: options, the client, and errors."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, aclosing
from functools import partial, wraps
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar, cast

import click
from anyio.from_thread import start_blocking_portal
from click import ClickException, UsageError, argument, option
from pydantic_ai.tools import ToolApproved, ToolDenied

from ..client.client import A2AClient
from ..client.connections import Connections
from ..client.following import STOPPED, WAITING, Update
from ..client.messages import SendOptions
from ..client.urls import origin
from ..client.waiting import PendingRemoteCall, RemoteAnswer, WaitingTask, answer_to
from ..conversion.remote_calls import open_calls, wanted_schema
from ..errors import A2AError, InvalidParamsError, RemoteError
from ..remote.model import RemoteTasks
from ..types import Message, Part, Task
from .terminal import Command, Form, artifact_text, ask, echo, question_of, safe, say, screen_for

WAITS = 3
"""Exit code for a waiting task, without a terminal for the answer."""
INTERRUPTED = 130
"""Exit code after Ctrl-C."""


class Remote(NamedTuple):
    """A remote agent on the command line."""

    url: str
    headers: dict[str, str]
    token: str | None
    timeout: float
    trusted_origins: Sequence[str]

    def client(self) -> A2AClient:
        """Return a client of the agent."""
        return A2AClient(
            self.url,
            headers=self.headers,
            auth=self.token,
            timeout=self.timeout,
            trusted_origins=self.trusted_origins,
        )

    def connections(self) -> Connections:
        """Return connections to the agent.

        Raises:
            UsageError: A header has characters that HTTP does not allow.
        """
        try:
            return Connections(headers=self.headers, auth=self.token, client=None, timeout=self.timeout)
        except ValueError as error:
            raise UsageError(str(error)) from None


def agent_options(command: Command) -> Command:
    """Add the argument and the options for a remote agent. The command gets both as `remote`."""

    @argument('url')
    @option(
        '--header', 'headers', multiple=True, metavar='"NAME: VALUE"', help='Header of each request. Can be repeated.'
    )
    @option('--token-env', metavar='NAME', help='Environment variable with a bearer token.')
    @option(
        '--timeout', default=30.0, show_default=True, metavar='SECONDS', help='Longest wait for a connection or data.'
    )
    @option(
        '--trusted-origin',
        'trusted_origins',
        multiple=True,
        metavar='ORIGIN',
        help="Origin besides the card's that may get requests and credentials. Can be repeated.",
    )
    @option('--debug', is_flag=True, help='Show the traceback of an error.')
    @wraps(command)
    def with_agent(
        *,
        url: str,
        headers: Sequence[str],
        token_env: str | None,
        timeout: float,
        trusted_origins: Sequence[str],
        debug: bool,
        **options: Any,
    ) -> int:
        if timeout <= 0:
            raise UsageError('--timeout takes a number of seconds above zero.')
        if not all(map(origin, trusted_origins)):
            raise UsageError('--trusted-origin takes an origin such as https://api.example.com.')
        remote = Remote(url, dict(map(_header, headers)), _token(token_env), timeout, trusted_origins)
        remote.connections()  # refuses bad headers before the command does anything
        try:
            return command(remote=remote, **options)
        except (A2AError, RemoteError) as error:
            if debug:
                echo(''.join(traceback.format_exception(error)), err=True)
            raise ClickException(safe(_sentence(error))) from error

    return with_agent


def json_options(command: Command) -> Command:
    """Add `--json` and `--jsonl`. The command gets `form`: `text`, `json` or `jsonl`."""

    @option('--json', 'as_json', is_flag=True, help='Write the task as JSON, at its end.')
    @option('--jsonl', 'as_lines', is_flag=True, help='Write each event as a line of JSON.')
    @wraps(command)
    def with_form(*, as_json: bool, as_lines: bool, **options: Any) -> int:
        if as_json and as_lines:
            raise UsageError('--json and --jsonl cannot be combined: give one of them.')
        return command(form='json' if as_json else 'jsonl' if as_lines else 'text', **options)

    return with_form


def _header(header: str) -> tuple[str, str]:
    name, colon, value = header.partition(':')
    if not colon or not name.strip():
        raise UsageError('--header takes a name and a value with a colon between them, such as "X-API-Key: 123".')
    return name.strip(), value.strip()


def _token(name: str | None) -> str | None:
    if name is None:
        return None
    if not (token := os.environ.get(name)):
        raise UsageError(f'The environment variable {name} of --token-env is not set.')
    return token


def _sentence(error: A2AError | RemoteError) -> str:
    if not isinstance(error, A2AError):
        return str(error)
    credentials = ' Give credentials with --token-env or --header.' if error.http_status in (401, 403) else ''
    correlation_id = f' (correlation id {error.correlation_id})' if error.correlation_id else ''
    return f'The agent has refused the request: {error.message}{correlation_id}{credentials}'


# --- questions to a person --------------------------------------------------------------------------------------------
# Asks a person for the answers to a waiting remote task.


def decide(waiting: WaitingTask) -> RemoteAnswer:
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


def _show_sign_in(waiting: WaitingTask) -> None:
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
_WAKE = 1.0
"""Seconds after which the main thread handles a Ctrl-C that came just before the wait."""
_END = 15.0
"""Seconds for the cancellation of a task after Ctrl-C."""
_QUEUED = 10.0
"""Seconds after which a task that has not begun is reported."""


class Talk:
    """A conversation with a remote agent.

    Args:
        remote: The agent.
        form: How answers are written.
        hints: True to say after each answer how to go on.
    """

    def __init__(self, remote: Remote, form: Form = 'text', *, hints: bool = True) -> None:
        self.client = remote.client()
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
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
            while not ended.wait(_WAKE) and not future.done():
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
            while self._asks and 'status' in outcome and outcome['status']['state'] in WAITING:
                outcome = self._answered(outcome)
        except (KeyboardInterrupt, click.Abort):
            return self._interrupted()
        return self._ended(outcome)

    def watch(self, task_id: str) -> int:
        """Show the events of a task until it stops. Return the exit code. Ctrl-C ends only the command."""
        try:
            outcome = self._run(lambda: self._show(self.client.subscribe(task_id)))
        except KeyboardInterrupt:
            say(f'the task {task_id} goes on')
            return INTERRUPTED
        return self._ended(outcome)

    def _answered(self, task: Task) -> Task | Message:
        """Ask for the answers of a waiting task. Return the task after the answers, or as before if refused."""
        answer = decide(question_of(task))
        if 'denied' in answer:
            return self._run(partial(self.client.cancel, task['id'])).outcome
        try:
            return self._follow(answer.get('parts', []), task['id'], task['context_id'], before=artifact_text(task))
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
                        queued = asyncio.get_running_loop().call_later(_QUEUED, self._report_queued)
                    self._task = update.task
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
            say(f'the task {self._task["id"]} has been queued for {_QUEUED:.0f} seconds: is a worker running?')

    def _ended(self, outcome: Task | Message) -> int:
        """Say how to go on. Return the exit code."""
        self.context_id = outcome.get('context_id')
        if 'status' not in outcome:
            return 0
        state = outcome['status']['state']
        context = f'--context {outcome["context_id"]}'
        if state in WAITING:
            say(f'the task waits; answer with --task {outcome["id"]} {context}')
            return WAITS
        if self._hints or state != 'completed':
            say(f'the task {outcome["id"]} is {state}; go on with {context}')
        return int(state != 'completed')

    def _interrupted(self) -> int:
        """Cancel the task, and say so."""
        task = self._task
        if task is None:
            say('interrupted before the agent has named its task')
            return INTERRUPTED
        self.context_id = task['context_id']
        try:
            task = self._run(partial(self._canceled, task))
        except (A2AError, RemoteError) as error:
            say(f'the task {task["id"]} could not be canceled: {error!s}')
        else:
            say(f'the task {task["id"]} is {task["status"]["state"]}')
        return INTERRUPTED

    async def _canceled(self, task: Task) -> Task:
        """Return the task after the cancellation. Cancel a waiting task; a running task is canceled already."""
        latest = await self.client.get(task['id'], history_length=0)
        if latest.state not in STOPPED - WAITING:
            latest = await self.client.cancel(task['id'])
        return cast('Task', latest.task)
