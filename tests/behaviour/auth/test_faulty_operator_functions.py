"""Functions of an operator that decide about requests, and return a wrong value, raise an exit, or never return."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.fernet import Fernet
from pydantic_ai import Agent
from starlette.requests import Request
from starlette.types import Message

from pydantic_ai_a2a import Access, AllOf, Approvals, BearerAuth, Caller, Credentials, Messages, serve, to_a2a
from pydantic_ai_a2a.server.auth import request_info
from pydantic_ai_a2a.server.auth.authenticator import Authenticator
from pydantic_ai_a2a.server.auth.request_info import RequestInfo

from ...app_client import LIMIT, Client, Exchange, RpcError, message, rpc, state_of
from ...clocks import skip_time
from ...serving import list_tasks, serving
from ..pending_calls import ApprovalAgent, answer_message, approve
from ..refusals import BASE_EXCEPTIONS, SECRET, error_of_answer, error_of_call, send_body, serving_without_runs


def identify(request: Any) -> Caller:
    return Caller(id=request.headers.get('x-caller', 'ann'))


def options_of(function: Callable[..., Any], name: str) -> dict[str, Any]:
    """Return the options of an app that calls a function."""
    if name == 'auth=':
        return {'auth': function}
    if name == 'Messages.reply':
        return {'auth': identify, 'messages': Messages(reply=function)}
    if name == 'Approvals.approvers':
        return {'auth': identify, 'approvals': Approvals(approvers=function)}
    option = name.removeprefix('Access.')
    access: dict[str, Any] = {option: function}
    if name == 'Credentials.exchange':
        access = {'credentials': Credentials(exchange=function, keys=[Fernet.generate_key().decode()])}
    return {'auth': identify, 'access': Access(**access)}


FUNCTIONS = (
    'auth=',
    'Access.tenants',
    'Access.extended_card',
    'Approvals.approvers',
    'Credentials.exchange',
    'Messages.reply',
)


async def request_calling(client: Client, name: str) -> tuple[Client, str, Any]:
    """Return a request that calls the function."""
    if name == 'Access.extended_card':
        return client, 'GetExtendedAgentCard', None
    if name == 'Access.tenants':
        return Client(client.app, path='/acme'), 'SendMessage', {'message': message()}
    if name == 'Approvals.approvers':
        task = await client.send('delete')
        return Client(client.app, headers={'X-Caller': 'bob'}), 'GetTask', {'id': task['id']}
    return client, 'SendMessage', {'message': message()}


# --- functions that return a wrong value ----------------------------------------------------------------------------

TOKEN = 'long-token-of-ann'
BEARER = {'Authorization': f'Bearer {TOKEN}'}


async def _later(value: Any) -> Any:
    return value


def _returns(value: Any) -> Callable[..., Any]:
    def mistaken(*_: Any) -> Any:
        return value

    return mistaken


def _forgets_to_await(*_: Any) -> Any:
    return _later(_later(True))


def _says_no_later(*_: Any) -> Any:
    return _later('no')


WRONG: dict[str, Callable[..., Any]] = {
    'text': _returns('no'),
    'a number': _returns(1),
    'an object': _returns(object()),
    'nothing': _returns(None),
    'later': _says_no_later,
    'a coroutine of a coroutine': _forgets_to_await,
}
"""Functions that return neither True nor False."""
each_wrong = pytest.mark.parametrize('wrong', WRONG.values(), ids=list(WRONG))


def _named(caplog: pytest.LogCaptureFixture, option: str, function: Callable[..., Any]) -> bool:
    return any(f'{option} {function.__qualname__} returned' in record.getMessage() for record in caplog.records)


class CallerWithoutId(Authenticator):
    async def authenticate(self, request: RequestInfo) -> Caller | None:
        return Caller()


FOUND: dict[str, Callable[[], Any]] = {
    'anonymous': Caller,
    'only a tenant': lambda: Caller(tenant='acme'),
    'only an owner': lambda: Caller(owns_as='ann'),
    'a name': lambda: 'ann',
    'true': lambda: True,
    'false': lambda: False,
}


@pytest.mark.parametrize('found', FOUND.values(), ids=list(FOUND))
@pytest.mark.parametrize('is_async', [False, True])
async def test_auth_function_must_return_caller_with_id(
    found: Callable[[], Any], is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def authenticate(_: Request) -> Any:
        return _later(found()) if is_async else found()

    async with serving_without_runs(auth=authenticate) as client:
        error_of_answer(await client.post(send_body()), status=401, id=None)
    assert _named(caplog, 'auth=', authenticate)


async def test_auth_function_returning_nested_coroutine_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    async with serving_without_runs(auth=_forgets_to_await) as client:
        error_of_answer(await client.post(send_body()), status=401, id=None)
    assert _named(caplog, 'auth=', _forgets_to_await)


async def test_all_of_needs_caller_id_from_every_part(caplog: pytest.LogCaptureFixture) -> None:
    ann = BearerAuth({TOKEN: 'ann'})
    for auth in (CallerWithoutId(), AllOf(ann, CallerWithoutId()), AllOf(CallerWithoutId(), ann)):
        async with serving_without_runs(auth=auth) as client:
            error_of_answer(await client.post(send_body(), BEARER), status=401, id=None)
        assert 'auth= CallerWithoutId returned Caller instead of a Caller with an id, or None' in caplog.text
        caplog.clear()


@each_wrong
async def test_tenant_is_allowed_only_by_true(wrong: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    async with serving_without_runs(auth=BearerAuth({TOKEN: 'ann'}), access=Access(tenants=wrong)) as client:
        answer = await client.post(send_body(), BEARER, path='/acme/')
    assert 'is not a tenant of this caller' in error_of_answer(answer).message
    assert _named(caplog, 'Access.tenants', wrong)


@each_wrong
async def test_approver_is_allowed_only_by_true(wrong: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    tools = ApprovalAgent()
    async with serving(
        tools.agent, auth=BearerAuth({TOKEN: 'ann'}), approvals=Approvals(approvers=wrong), headers=BEARER
    ) as client:
        task = await client.send('delete')
        with pytest.raises(RpcError, match='The caller may not answer this call'):
            await client.send(answer_message(task, approve()))
    assert tools.deleted == []
    assert _named(caplog, 'Approvals.approvers', wrong)


# --- functions that raise no `Exception`, such as `SystemExit` ------------------------------------------------------

Exits = Callable[..., Any]


@pytest.fixture(params=[f'{name} {later}' for name in BASE_EXCEPTIONS for later in ('', 'later')])
def exiting_function(request: pytest.FixtureRequest) -> Exits:
    """A function that raises, at once or while it is awaited."""
    name, later = request.param.split(' ')

    def leave(*_: Any) -> Any:
        raise BASE_EXCEPTIONS[name]()

    async def leave_later(*_: Any) -> Any:
        raise BASE_EXCEPTIONS[name]()

    return leave_later if later else leave


def check_refusal(error: RpcError, caplog: pytest.LogCaptureFixture) -> None:
    """Compare an error with that of any function that fails, and look for the failure in the log."""
    assert (error.code, error.message.rstrip('.')) == (-32603, 'Internal error')
    assert SECRET not in str(error.data)
    [record] = [record for record in caplog.records if 'Request failed' in record.message]
    assert record.exc_info is not None
    assert SECRET in str(record.exc_info[1])


@pytest.mark.parametrize('name', ['auth=', 'Access.tenants', 'Access.extended_card'])
async def test_exit_in_operator_function_refuses_request(
    name: str, exiting_function: Exits, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving_without_runs(**options_of(exiting_function, name)) as client:
        asked, method, params = await request_calling(client, name)
        error = await error_of_call(asked.call(method, params))
    check_refusal(error, caplog)


@pytest.mark.parametrize('raised', BASE_EXCEPTIONS)
async def test_exit_in_owner_function_refuses_the_request(raised: str, caplog: pytest.LogCaptureFixture) -> None:
    def leave(_: Caller) -> str:
        raise BASE_EXCEPTIONS[raised]()

    async with serving_without_runs(auth=identify, access=Access(owner=leave)) as client:
        error = await error_of_call(client.send())
    check_refusal(error, caplog)


async def test_exit_in_approvers_leaves_the_task_waiting(
    exiting_function: Exits, caplog: pytest.LogCaptureFixture
) -> None:
    tools = ApprovalAgent()
    async with serving(tools.agent, auth=identify, approvals=Approvals(approvers=exiting_function)) as client:
        task = await client.send('delete')
        error = await error_of_call(
            Client(client.app, headers={'X-Caller': 'bob'}).send(answer_message(task, approve()))
        )
        check_refusal(error, caplog)
        assert state_of(await client.get_task(task['id'])) == 'INPUT_REQUIRED'
        waiting = {'status': 'TASK_STATE_INPUT_REQUIRED'}
        assert (await client.call('ListTasks', waiting))['totalSize'] == 1
        caplog.clear()
        check_refusal(
            await error_of_call(Client(client.app, headers={'X-Caller': 'bob'}).call('ListTasks', waiting)), caplog
        )
    assert tools.deleted == []


async def test_server_keeps_serving_after_exit_in_auth(exiting_function: Exits) -> None:
    def authenticate(request: Request) -> Any:
        return exiting_function() if 'x-caller' in request.headers else Caller(id='ann')

    async with serving(Agent('test'), auth=authenticate) as client:
        with pytest.raises(RpcError):
            await Client(client.app, headers={'X-Caller': 'nobody'}).send()
        assert state_of(await client.send(message('hello'))) == 'COMPLETED'


# --- functions that never return, or cancel the request -------------------------------------------------------------


class HangingFunction:
    """A function that never returns, and is told that it ends."""

    def __init__(self) -> None:
        self.begun, self.ended = asyncio.Event(), asyncio.Event()

    async def __call__(self, *_: Any) -> Any:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()


@pytest.mark.parametrize('name', FUNCTIONS)
async def test_operator_function_cancelling_its_task_refuses_request(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def leave(*_: Any) -> Any:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)
        raise AssertionError

    async with serving(ApprovalAgent().agent, **options_of(leave, name)) as client:
        asked, method, params = await request_calling(client, name)
        answer = await asked.post(rpc(method, params))
    assert (answer.json['error']['code'], answer.json['error']['message']) == (-32603, 'Internal error.')
    assert answer.headers['x-correlation-id'] in caplog.text


async def test_request_cancelled_by_server_ends_though_auth_cancels_too() -> None:
    begun = asyncio.Event()

    async def leave(_: Any) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()

    async with serving(Agent('test'), auth=leave) as client:
        exchange = Exchange(client.app, 'POST', '/', {'Content-Type': 'application/json'}, rpc('SendMessage', {}))
        await begun.wait()
        exchange.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await exchange.task


@pytest.mark.parametrize('name', FUNCTIONS)
async def test_hanging_operator_function_times_out(
    name: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_info, 'FUNCTION_TIME', 0.01)
    endless = HangingFunction()
    async with serving(ApprovalAgent().agent, **options_of(endless, name)) as client:
        asked, method, params = await request_calling(client, name)
        error = await error_of_call(asked.call(method, params))
    assert error.message.endswith('try again later.')
    assert endless.ended.is_set()
    assert f'{name} has not returned within 0.01 s (correlation id ' in caplog.text


class WaitingClient(Exchange):
    """A request during which hours pass while the server watches whether the client leaves."""

    async def _receive(self) -> Message:
        if self._given:
            skip_time(LIMIT / 4)
        return await super()._receive()


async def test_get_task_waits_briefly_for_approvers(monkeypatch: pytest.MonkeyPatch) -> None:
    endless = HangingFunction()
    async with serving(ApprovalAgent().agent, **options_of(endless, 'Approvals.approvers')) as client:
        task = await client.send('delete')
        monkeypatch.setattr(request_info, 'FUNCTION_TIME', LIMIT / 2)
        headers = {'Content-Type': 'application/json', 'A2A-Version': '1.0'}
        answer = await WaitingClient(client.app, 'POST', '/', headers, rpc('GetTask', {'id': task['id']})).answer()
    assert endless.ended.is_set()
    assert answer.json['result']['id'] == task['id']


class DisconnectingClient(Exchange):
    """A request whose client sends the body, or a part of it, and may leave."""

    def __init__(self, client: Client, body: bytes, *, more: bool = False) -> None:
        self.taken = asyncio.Event()
        self.parts: asyncio.Queue[Message] = asyncio.Queue()
        self.parts.put_nowait({'type': 'http.request', 'body': body, 'more_body': more})
        super().__init__(client.app, 'POST', '/', {'Content-Type': 'application/json', 'A2A-Version': '1.0'}, b'')

    async def _receive(self) -> Message:
        message = await self.parts.get()
        self.taken.set()
        return message

    def leave(self) -> None:
        self.parts.put_nowait({'type': 'http.disconnect'})


@pytest.mark.parametrize('name', ['auth=', 'Messages.reply'])
async def test_operator_function_is_cancelled_when_client_leaves(name: str) -> None:
    endless = HangingFunction()
    async with serving(Agent('test'), **options_of(endless, name)) as client:
        request = DisconnectingClient(client, rpc('SendMessage', {'message': message()}))
        await endless.begun.wait()
        request.leave()
        await endless.ended.wait()
        await asyncio.wait([request.task])
        assert await list_tasks(client) == []


async def test_auth_function_is_cancelled_when_socket_closes() -> None:
    begun, ended = threading.Event(), threading.Event()

    async def endless(_: Any) -> Caller:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    with serve(to_a2a(Agent('test'), auth=endless)) as server:
        host, _, port = server.url.removeprefix('http://').strip('/').partition(':')
        body = b'{}'
        with socket.create_connection((host, int(port)), timeout=LIMIT) as connection:
            connection.sendall(
                b'POST / HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s'
                % (host.encode(), len(body), body)
            )
            assert await asyncio.to_thread(begun.wait, LIMIT)
        assert await asyncio.to_thread(ended.wait, LIMIT)


@pytest.mark.parametrize('pieces', [1, 3])
async def test_body_sent_during_authentication_is_read(pieces: int) -> None:
    decide = asyncio.Event()

    async def auth(_: Any) -> Caller:
        await decide.wait()
        return Caller(id='ann')

    body = rpc('SendMessage', {'message': message()})
    async with serving(Agent('test'), auth=auth) as client:
        request = DisconnectingClient(client, body[: len(body) // pieces], more=pieces > 1)
        await request.taken.wait()  # the server watches its client after a second
        for n in range(1, pieces):
            part = body[len(body) * n // pieces : len(body) * (n + 1) // pieces]
            request.parts.put_nowait({'type': 'http.request', 'body': part, 'more_body': n + 1 < pieces})
        decide.set()
        assert (await request.answer()).status == 200
        assert len(await list_tasks(client)) == 1
