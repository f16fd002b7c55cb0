"""Credentials of callers: exchanged with a message, encrypted in the store, and read by the run."""

from __future__ import annotations

import asyncio
import logging
import pickle
import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from cryptography.fernet import Fernet
from fasta2a.storage import InMemoryStorage
from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset, ToolsetTool
from starlette.requests import Request
from starlette.types import ASGIApp

from pydantic_ai_a2a import (
    A2AApp,
    Access,
    Approvals,
    BearerAuth,
    Caller,
    Credential,
    Credentials,
    Messages,
    NoCredential,
    Workers,
    a2a,
    to_a2a,
)
from pydantic_ai_a2a.clock import SYSTEM, Clock
from pydantic_ai_a2a.server.store.sql.transaction import Transaction
from pydantic_ai_a2a.server.store.sqlite.memory import MemoryBackend

from ...app_client import LIMIT, Client, RpcError, lifespan, message, state_of, texts
from ...constants import with_constants
from ...serving import each_backend, serving, wait_until_ended
from ...suites.values import READER_LAG
from ..pending_calls import answer_message, approve, pending_calls

KEY, NEW_KEY = Fernet.generate_key().decode(), Fernet.generate_key().decode()
TOKENS = {'first-token-of-ann': 'ann', 'other-token-of-ann': 'ann', 'first-token-of-bob': 'bob'}
BOSS = Caller(id='boss', scopes=frozenset({'approve'}))
SECRET = 'downstream-secret'
EACH_STORE = each_backend('sqlite', 'postgres')


async def exchange_token(request: Request, caller: Caller) -> Credential:
    """Exchange the token of the caller for a token of another server."""
    token = request.headers['authorization'].removeprefix('Bearer ')
    return Credential(value=f'{SECRET} of {caller.id} for {token}', expires_in=600)


async def exchange_second_token_only(request: Request, caller: Caller) -> Credential | None:
    """Exchange only the other token of ann."""
    return await exchange_token(request, caller) if 'other' in request.headers['authorization'] else None


def exchange_returning(value: Any) -> Callable[[Request, Caller], Awaitable[Any]]:
    async def exchange(request: Request, caller: Caller) -> Any:
        return value

    return exchange


class CredentialAgent:
    """An agent with a tool that uses the credential of its caller."""

    def __init__(self) -> None:
        self.used: list[str] = []
        """The credentials that the tool has used."""
        self.asking, self.fetched, self.gate = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.gate.set()
        self.agent: Agent[Any, str] = Agent(FunctionModel(self._model), name='desk')
        self.agent.tool(self.fetch)

    async def _model(self, messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        if any(isinstance(part, ToolReturnPart) for part in messages[-1].parts):
            self.fetched.set()
            await self.gate.wait()
            return ModelResponse(parts=[TextPart('done')])
        self.asking.set()
        await self.gate.wait()
        return ModelResponse(parts=[ToolCallPart('fetch', {})])

    async def fetch(self, ctx: RunContext[Any]) -> str:
        """Call another server with the credential of the caller."""
        self.used.append(await a2a(ctx).credential())
        return 'fetched'

    def app(
        self,
        exchange: Callable[[Request, Caller], Any] = exchange_token,
        *,
        keys: tuple[str, ...] = (KEY,),
        timeout: float = 10.0,
        **options: Any,
    ) -> A2AApp:
        credentials = with_constants(Credentials, exchange=exchange, keys=keys, timeout=timeout)
        access = Access(credentials=credentials)
        return to_a2a(self.agent, auth=BearerAuth(TOKENS), access=access, **options)


def client_of(app: ASGIApp, token: str = 'first-token-of-ann') -> Client:
    return Client(app, headers={'Authorization': f'Bearer {token}'})


@asynccontextmanager
async def serving_ann(app: A2AApp) -> AsyncGenerator[Client]:
    """The client of ann for the app, which is served in the block."""
    async with lifespan(app), asyncio.timeout(LIMIT):
        yield client_of(app)


async def auth_required(client: Client, task_id: str) -> None:
    """Wait until the task needs a sign-in."""
    async with client.subscribe(task_id) as stream:
        if state_of((await anext(stream)).result['task']) != 'AUTH_REQUIRED':
            await stream.until('TASK_STATE_AUTH_REQUIRED')


async def test_tool_uses_credential_of_its_caller(caplog: pytest.LogCaptureFixture) -> None:
    desk = CredentialAgent()
    with caplog.at_level(logging.DEBUG):
        async with serving_ann(desk.app()) as client:
            task = await client.send('Go!')
            assert await client_of(client.app, 'first-token-of-bob').send('Go!')
    assert state_of(task) == 'COMPLETED'
    assert desk.used == [f'{SECRET} of ann for first-token-of-ann', f'{SECRET} of bob for first-token-of-bob']
    assert SECRET not in caplog.text + repr(task) + repr(Credential(value=SECRET, expires_in=1))


async def test_exchange_may_be_a_plain_function() -> None:
    desk = CredentialAgent()
    async with serving_ann(
        desk.app(lambda request, caller: Credential(value=f'{SECRET} of {caller.id}', expires_in=600))
    ) as client:
        assert state_of(await client.send('Go!')) == 'COMPLETED'
    assert desk.used == [f'{SECRET} of ann']


async def test_streamed_message_brings_a_credential() -> None:
    desk = CredentialAgent()
    async with serving_ann(desk.app()) as client, client.send_streaming('Go!') as stream:
        await stream.rest()
    assert desk.used == [f'{SECRET} of ann for first-token-of-ann']


def test_missing_credential_error_can_be_pickled() -> None:
    assert str(pickle.loads(pickle.dumps(NoCredential()))) == str(NoCredential())


async def stored_credentials(backend: str) -> list[Any]:
    """Return the stored credentials."""
    if not backend.startswith('sqlite'):
        connection = await asyncpg.connect(backend)
        try:
            return await connection.fetch('SELECT * FROM a2a.credential')
        finally:
            await connection.close()
    with closing(sqlite3.connect(backend.removeprefix('sqlite:///').partition('?')[0])) as connection:
        return connection.execute('SELECT * FROM credential').fetchall()


@EACH_STORE
async def test_another_process_decrypts_credential_with_older_key(backend: str) -> None:
    first, second = CredentialAgent(), CredentialAgent()
    first.gate.clear()
    app = first.app(backend=backend, workers=Workers(drain_grace=0.01))
    async with serving_ann(app) as client:
        task = await client.send('Go!', returnImmediately=True)
        await asyncio.wait_for(first.asking.wait(), LIMIT)
        [row] = await stored_credentials(backend)
        assert SECRET not in repr(row)
    await asyncio.to_thread(app.backend.close)
    app = second.app(backend=backend, keys=(NEW_KEY, KEY))
    async with serving_ann(app) as client:
        assert texts(await wait_until_ended(client, task['id'])) == ['done']
        assert SECRET not in repr([item async for item in app.backend.housekeeping.export('/ann')])
    assert second.used == [f'{SECRET} of ann for first-token-of-ann']
    assert await stored_credentials(backend) == []


async def test_task_without_credential_is_auth_required_until_sign_in() -> None:
    desk = CredentialAgent()
    async with serving_ann(desk.app(exchange_second_token_only)) as client:
        task = await client.send('Go!')
        assert state_of(task) == 'AUTH_REQUIRED'
        assert desk.used == []
        again = message('Signed in.', taskId=task['id'])
        task = await client_of(client.app, 'other-token-of-ann').send(again)
        assert state_of(task) == 'COMPLETED'
    assert desk.used == [f'{SECRET} of ann for other-token-of-ann']


async def test_credential_is_not_used_for_later_message() -> None:
    desk = CredentialAgent()
    app = desk.app(exchange_second_token_only)
    async with serving_ann(app) as client:
        task = await client.send('Go!')
        desk.gate.clear()
        signed_in = message('Signed in.', taskId=task['id'])
        await client_of(app, 'other-token-of-ann').send(signed_in, returnImmediately=True)
        # The message is accepted while the credential of the other message is in use.
        await desk.fetched.wait()
        await client.send(message('Once more!', taskId=task['id']), returnImmediately=True)
        stored = await app.backend.reader.load(task['id'], None)
        assert stored is not None
        desk.gate.set()
        await app.backend.events.wait(task['id'], stored.header.last_event)
        task = await client.get_task(task['id'])
    assert state_of(task) == 'AUTH_REQUIRED'
    assert desk.used == [f'{SECRET} of ann for other-token-of-ann']


async def test_expired_credential_is_not_used() -> None:
    desk = CredentialAgent()
    async with serving_ann(desk.app(exchange_returning(Credential(value=SECRET, expires_in=0.0001)))) as client:
        assert state_of(await client.send('Go!')) == 'AUTH_REQUIRED'
        assert desk.used == []


class StoppedClock(Clock):
    """A wall clock that stands still."""

    def __init__(self) -> None:
        super().__init__()
        self._now = SYSTEM.now()

    def now(self) -> int:
        return self._now


async def test_credential_valid_for_part_of_second_is_used() -> None:
    desk = CredentialAgent()
    backend = MemoryBackend('desk', reader_lag=READER_LAG, clock=StoppedClock())
    async with serving_ann(
        desk.app(exchange_returning(Credential(value=SECRET, expires_in=0.9)), backend=backend)
    ) as client:
        assert state_of(await client.send('Go!')) == 'COMPLETED'
    assert desk.used == [SECRET]


@EACH_STORE
async def test_credential_of_other_task_is_not_used(backend: str) -> None:
    desk = CredentialAgent()
    desk.gate.clear()
    async with serving_ann(desk.app(backend=backend)) as client:
        of_ann = await client.send('Go!', returnImmediately=True)
        of_bob = await client_of(client.app, 'first-token-of-bob').send('Go!', returnImmediately=True)
        await copy_credential(backend, of_ann['id'], of_bob['id'])
        desk.gate.set()
        await auth_required(client_of(client.app, 'first-token-of-bob'), of_bob['id'])
        await wait_until_ended(client, of_ann['id'])
    assert desk.used == [f'{SECRET} of ann for first-token-of-ann']


async def copy_credential(backend: str, source: str, target: str) -> None:
    """Copy the encrypted credential of a task to another task."""
    copy = 'UPDATE {0} SET body = (SELECT body FROM {0} WHERE task_id = {1}) WHERE task_id = {2}'
    if backend.startswith('sqlite'):
        with closing(sqlite3.connect(backend.removeprefix('sqlite:///').partition('?')[0], timeout=LIMIT)) as file:
            file.execute(copy.format('credential', '?', '?'), (source, target))
            file.commit()
        return
    connection = await asyncpg.connect(backend)
    try:
        await connection.execute(copy.format('a2a.credential', '$1', '$2'), source, target)
    finally:
        await connection.close()


async def fails(request: Request, caller: Caller) -> Credential:
    raise ValueError(f'no exchange for {SECRET}')


async def exits(request: Request, caller: Caller) -> Credential:
    raise SystemExit(SECRET)


async def hangs(request: Request, caller: Caller) -> Credential:
    await asyncio.Event().wait()
    raise AssertionError


INVALID_CREDENTIALS = (
    SECRET,
    Credential(value='', expires_in=1),
    Credential(value='x' * 16_001, expires_in=1),
    Credential(value='two\r\nlines', expires_in=1),
    Credential(value=SECRET, expires_in=0),
    Credential(value=SECRET, expires_in=float('nan')),
    Credential(value=SECRET, expires_in='soon'),  # pyright: ignore[reportArgumentType]
    Credential(value=7, expires_in=1),  # pyright: ignore[reportArgumentType]
)


@pytest.mark.parametrize(
    ('exchange', 'code'),
    [
        (fails, -32000),
        (exits, -32000),
        (hangs, -32000),
        *((exchange_returning(value), -32603) for value in INVALID_CREDENTIALS),
    ],
    ids=['fails', 'exits', 'hangs', 'text', 'empty', 'long', 'lines', 'zero', 'NaN', 'text as time', 'number'],
)
async def test_failed_exchange_refuses_the_message(
    exchange: Callable[[Request, Caller], Awaitable[Any]], code: int, caplog: pytest.LogCaptureFixture
) -> None:
    desk = CredentialAgent()
    app = desk.app(exchange, timeout=0.01)
    async with serving_ann(app) as client:
        with pytest.raises(RpcError, match='The credentials of the caller could not be exchanged') as error:
            await client.send('Go!')
        assert await app.list_tasks() == []
    assert error.value.code == code
    assert 'Credentials.exchange' in caplog.text
    assert SECRET not in caplog.text
    assert not desk.asking.is_set()


@EACH_STORE
async def test_credential_of_unreadable_run_is_erased(backend: str) -> None:
    def damage(task_id: str) -> Transaction[None]:
        yield [('UPDATE task SET tried = ? WHERE id = ?', [(b'{', task_id)])]

    desk = CredentialAgent()
    desk.gate.clear()
    app = desk.app(backend=backend, workers=Workers(drain_grace=0.01))
    async with serving_ann(app) as client:
        task = await client.send('Go!', returnImmediately=True)
        await asyncio.wait_for(desk.asking.wait(), LIMIT)
        store: Any = app.backend
        await store.write(damage, task['id'])
    await asyncio.to_thread(store.close)
    assert len(await stored_credentials(backend)) == 1
    app = desk.app(backend=backend)
    async with serving_ann(app) as client:
        assert state_of(await wait_until_ended(client, task['id'])) == 'FAILED'
    await asyncio.to_thread(app.backend.close)
    assert await stored_credentials(backend) == []


@EACH_STORE
async def test_credential_is_erased_when_the_task_ends(backend: str) -> None:
    desk = CredentialAgent()
    desk.gate.clear()
    app = desk.app(backend=backend)
    async with serving_ann(app) as client:
        task = await client.send('Go!', returnImmediately=True)
        await asyncio.wait_for(desk.asking.wait(), LIMIT)
        assert len(await stored_credentials(backend)) == 1
        await client.call('CancelTask', {'id': task['id']})
        assert await stored_credentials(backend) == []
    await asyncio.to_thread(app.backend.close)
    app = CredentialAgent().app(exchange_returning(None), backend=backend)
    async with serving_ann(app) as client:
        waiting = await client.send('Go!')
        assert state_of(waiting) == 'AUTH_REQUIRED'
        # A task that waits keeps the credential of its last message, for at most the lifetime of the credential.
    await asyncio.to_thread(app.backend.close)


async def test_undecryptable_credential_leaves_the_task_auth_required(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    backend = f'sqlite:///{tmp_path}/desk.db'
    first, second = CredentialAgent(), CredentialAgent()
    first.gate.clear()
    app = first.app(backend=backend, workers=Workers(drain_grace=0.01))
    async with serving_ann(app) as client:
        task = await client.send('Go!', returnImmediately=True)
        await asyncio.wait_for(first.asking.wait(), LIMIT)
    await asyncio.to_thread(app.backend.close)
    app = second.app(backend=backend, keys=(NEW_KEY,))
    async with serving_ann(app) as client:
        await auth_required(client, task['id'])
        await app.resume_task(task['id'])
        await client.call('CancelTask', {'id': task['id']})
    await asyncio.to_thread(app.backend.close)
    assert second.used == []
    assert f'No key of Credentials.keys decrypts the credential of task {task["id"]}.' in caplog.text


async def test_run_outside_a_task_has_no_credential() -> None:
    agent = Agent('test')

    @agent.tool
    async def fetch(ctx: RunContext[Any]) -> str:
        with pytest.raises(NoCredential):
            await a2a(ctx).credential()
        return 'none'

    assert (await agent.run('Go!')).output == '{"fetch":"none"}'


def test_invalid_credentials_options_are_rejected() -> None:
    access = Access(credentials=Credentials(exchange=exchange_token, keys=[KEY]))
    auth = BearerAuth(TOKENS)
    with pytest.raises(TypeError, match=r'Access.credentials needs auth='):
        to_a2a(Agent('test'), access=access)
    with pytest.raises(TypeError, match=r'Messages.reply cannot be combined with Access.credentials'):
        to_a2a(Agent('test'), access=access, auth=auth, messages=Messages(reply='message'))
    with pytest.raises(ValueError, match=r'Access.credentials needs a backend with credentials'):
        to_a2a(Agent('test'), access=access, auth=auth, storage=InMemoryStorage())
    with pytest.raises(ValueError, match=r'Credentials.keys must be keys'):
        to_a2a(
            Agent('test'), auth=auth, access=Access(credentials=Credentials(exchange=exchange_token, keys=['short']))
        )
    with pytest.raises(ValueError, match=r'Credentials.keys needs a key'):
        Credentials(exchange=exchange_token, keys=[])


async def test_approver_does_not_replace_the_credential() -> None:
    used: list[str] = []
    exchanges: list[str] = []
    agent: Agent[Any, Any] = Agent(TestModel(), name='desk')

    @agent.tool(requires_approval=True)
    async def pay(ctx: RunContext[Any]) -> None:
        used.append(await a2a(ctx).credential())

    async def exchange(request: Request, caller: Caller) -> Credential:
        exchanges.append(caller.id)
        return await exchange_token(request, caller)

    async with serving(
        agent,
        auth=BearerAuth({**TOKENS, 'first-token-of-boss': BOSS}),
        access=Access(credentials=Credentials(exchange=exchange, keys=[KEY])),
        approvals=Approvals(approvers='approve'),
    ) as client:
        task = await client_of(client.app).send('Pay.')
        [call] = pending_calls(task)
        await client_of(client.app, 'first-token-of-boss').send(answer_message(task, approve(call['id'])))
        await wait_until_ended(client_of(client.app), task['id'])
    assert (used, exchanges) == ([f'{SECRET} of ann for first-token-of-ann'], ['ann'])


class ToolsetNeedingCredential(FunctionToolset[Any]):
    """A toolset that needs the credential before the first step of a run, as the toolset of an MCP server does."""

    def __init__(self) -> None:
        super().__init__()
        self.used: list[str] = []
        self.expired = False
        self.tool_plain(requires_approval=True)(self.delete)

    async def for_run(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        self.used.append(await a2a(ctx).credential())
        if self.expired:
            raise NoCredential
        return self

    async def delete(self) -> str:
        """Delete the newest mail."""
        return 'deleted'


def prompts_and_results(messages: list[ModelMessage]) -> list[str]:
    """Return the prompts and the results of tools."""
    parts = [part for message in messages for part in message.parts]
    return [str(part.content) for part in parts if isinstance(part, UserPromptPart | ToolReturnPart)]


def mail_app(
    mail: ToolsetNeedingCredential, exchange: Callable[[Request, Caller], Awaitable[Any]], **options: Any
) -> A2AApp:
    def model(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        said = prompts_and_results(messages)
        if 'deleted' in said:
            return ModelResponse(parts=[TextPart(' + '.join(said))])
        return ModelResponse(parts=[ToolCallPart('delete', {})])

    return to_a2a(
        Agent(FunctionModel(model), name='mail', toolsets=[mail]),
        auth=BearerAuth({**TOKENS, 'first-token-of-boss': BOSS}),
        access=Access(credentials=Credentials(exchange=exchange, keys=[KEY])),
        **options,
    )


async def test_toolset_without_credential_pauses_before_first_step() -> None:
    mail = ToolsetNeedingCredential()
    async with serving_ann(mail_app(mail, exchange_second_token_only)) as client:
        task = await client.send('Delete it.')
        assert state_of(task) == 'AUTH_REQUIRED'
        owner = client_of(client.app, 'other-token-of-ann')
        task = await owner.send(message('Signed in.', taskId=task['id']))
        [call] = pending_calls(task)
        task = await owner.send(answer_message(task, approve(call['id'])))
    assert texts(task) == ['Delete it. + Signed in. + deleted']


@each_backend('memory', 'sqlite')
async def test_approved_call_runs_after_owner_signs_in(backend: str) -> None:
    mail = ToolsetNeedingCredential()
    app = mail_app(mail, exchange_token, approvals=Approvals(approvers='approve'), backend=backend)
    async with serving_ann(app) as client:
        task = await client.send('Delete it.')
        [call] = pending_calls(task)
        mail.expired = True
        await client_of(app, 'first-token-of-boss').send(answer_message(task, approve(call['id'])))
        owner = client_of(app, 'other-token-of-ann')
        await auth_required(owner, task['id'])
        with pytest.raises(RpcError, match='Read the task for what waits now'):
            await owner.send(answer_message(task, approve('another')))
        mail.expired = False
        task = await owner.send(message('Signed in.', taskId=task['id']))
        assert state_of(task) == 'COMPLETED'
    await asyncio.to_thread(app.backend.close)
    assert texts(task) == ['Delete it. + deleted + Signed in.']
    ann = f'{SECRET} of ann for'
    assert mail.used == [*[f'{ann} first-token-of-ann'] * 2, f'{ann} other-token-of-ann']


class ToolNeedingCredential(FunctionToolset[Any]):
    """A toolset whose tools are listed, or whose tool is called, without a credential that is valid."""

    def __init__(self) -> None:
        super().__init__()
        self.listed = self.called = True
        self.tool_plain(self.fetch)

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        if not self.listed:
            raise NoCredential
        return await super().get_tools(ctx)

    async def fetch(self) -> str:
        """Return the newest mail."""
        if not self.called:
            raise NoCredential
        return 'fetched'


@EACH_STORE
@pytest.mark.parametrize('listed', [False, True], ids=['at its start', 'in the tool'])
async def test_messages_sent_while_auth_required_all_reach_model(backend: str, listed: bool) -> None:
    def model(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        spoken = prompts_and_results(messages)
        return ModelResponse(parts=[TextPart(' + '.join(spoken)) if 'fetched' in spoken else ToolCallPart('fetch', {})])

    post = ToolNeedingCredential()
    app = to_a2a(Agent(FunctionModel(model), name='agent', toolsets=[post]), backend=backend, auth=BearerAuth(TOKENS))
    async with serving_ann(app) as client:
        post.called = False
        task = await client.send('Fetch it.')
        post.listed = listed
        for text in ('Signed in.', 'Signed in again.'):
            task = await client.send(message(text, taskId=task['id']))
            assert state_of(task) == 'AUTH_REQUIRED'
        post.called = post.listed = True
        task = await client.send(message('Now!', taskId=task['id']))
        following = await client.send(message('And then?', contextId=task['contextId']))
    await asyncio.to_thread(app.backend.close)
    read = "Fetch it. + fetched + ['Signed in.', 'Signed in again.', 'Now!']"
    assert (texts(task), texts(following)) == ([read], [f'{read} + And then?'])


@EACH_STORE
async def test_resumed_run_waits_for_a_missing_credential(backend: str) -> None:
    async def hang() -> str:
        """Read the mail."""
        running.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def read() -> str:
        """Read the mail."""
        return 'deleted'

    running = asyncio.Event()
    first, second = ToolsetNeedingCredential(), ToolsetNeedingCredential()
    for mail, tool in ((first, hang), (second, read)):
        mail.tools.clear()
        mail.add_function(tool, takes_ctx=False, name='delete')
    app = mail_app(first, exchange_token, backend=backend, workers=Workers(drain_grace=0.01))
    async with serving_ann(app) as client:
        task = await client.send('Delete it.', returnImmediately=True)
        await asyncio.wait_for(running.wait(), LIMIT)
    await asyncio.to_thread(app.backend.close)
    second.expired = True
    app = mail_app(second, exchange_token, backend=backend)
    async with serving_ann(app) as client:
        await auth_required(client, task['id'])
        second.expired = False
        task = await client.send(message('Signed in.', taskId=task['id']))
    await asyncio.to_thread(app.backend.close)
    assert texts(task) == ['Delete it. + Signed in. + deleted']
