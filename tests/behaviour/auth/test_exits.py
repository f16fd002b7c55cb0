"""Functions for access that raise no `Exception`, such as `SystemExit`: the request is refused, the server goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai import Agent
from starlette.requests import Request

from pydantic_ai_a2a import Access, Approvals, Caller, to_a2a

from ...client import Client, RpcError, lifespan, message, state_of
from ..asking import Tools, answers, approve
from ..refused import RAISED, SECRET, untouched

Exits = Callable[..., Any]


@pytest.fixture(params=[f'{name} {later}' for name in RAISED for later in ('', 'later')])
def exits(request: pytest.FixtureRequest) -> Exits:
    """A function that raises, at once or while it is awaited."""
    name, later = request.param.split(' ')

    def leave(*_: Any) -> Any:
        raise RAISED[name]()

    async def leave_later(*_: Any) -> Any:
        raise RAISED[name]()

    return leave_later if later else leave


def identify(request: Request) -> Caller:
    return Caller(id=request.headers.get('x-caller', 'ann'))


def check_refusal(error: RpcError, caplog: pytest.LogCaptureFixture) -> None:
    """Compare an error with that of any function that fails, and look for the failure in the log."""
    assert (error.code, error.message.rstrip('.')) == (-32603, 'Internal error')
    assert SECRET not in str(error.data)
    [record] = [record for record in caplog.records if 'Request failed' in record.message]
    assert record.exc_info is not None
    assert SECRET in str(record.exc_info[1])


async def test_an_authenticator_that_exits_refuses_the_request(exits: Exits, caplog: pytest.LogCaptureFixture) -> None:
    async with untouched(auth=exits) as client:
        with pytest.raises(RpcError) as error:
            await client.send()
    check_refusal(error.value, caplog)


async def test_a_rule_of_tenants_that_exits_refuses_the_request(exits: Exits, caplog: pytest.LogCaptureFixture) -> None:
    async with untouched(auth=identify, access=Access(tenants=exits)) as client:
        with pytest.raises(RpcError) as error:
            await Client(client.app, path='/acme').send()
    check_refusal(error.value, caplog)


@pytest.mark.parametrize('raised', RAISED)
async def test_an_owner_that_exits_refuses_the_request(raised: str, caplog: pytest.LogCaptureFixture) -> None:
    def leave(_: Caller) -> str:
        raise RAISED[raised]()

    async with untouched(auth=identify, access=Access(owner=leave)) as client:
        with pytest.raises(RpcError) as error:
            await client.send()
    check_refusal(error.value, caplog)


async def test_an_extended_card_that_exits_refuses_the_request(exits: Exits, caplog: pytest.LogCaptureFixture) -> None:
    async with untouched(auth=identify, access=Access(extended_card=exits)) as client:
        with pytest.raises(RpcError) as error:
            await client.call('GetExtendedAgentCard')
    check_refusal(error.value, caplog)


async def test_approvers_that_exit_refuse_the_decision_and_leave_the_task_waiting(
    exits: Exits, caplog: pytest.LogCaptureFixture
) -> None:
    tools = Tools()
    app = to_a2a(tools.agent, auth=identify, approvals=Approvals(approvers=exits))
    async with lifespan(app):
        task = await Client(app).send('delete')
        with pytest.raises(RpcError) as error:
            await Client(app, headers={'X-Caller': 'bob'}).send(answers(task, approve()))
        check_refusal(error.value, caplog)
        assert state_of(await Client(app).get_task(task['id'])) == 'INPUT_REQUIRED'
    assert tools.deleted == []


async def test_the_server_goes_on_serving(exits: Exits) -> None:
    app = to_a2a(Agent('test'), auth=lambda request: exits() if 'x-caller' in request.headers else Caller(id='ann'))
    async with lifespan(app):
        with pytest.raises(RpcError):
            await Client(app, headers={'X-Caller': 'nobody'}).send()
        assert state_of(await Client(app).send(message('hello'))) == 'COMPLETED'
