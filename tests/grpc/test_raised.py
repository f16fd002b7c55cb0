"""Functions of the user that raise what is no `Exception`: the call is refused, and never stays open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from a2a.types import GetExtendedAgentCardRequest, GetTaskRequest, SendMessageRequest
from cryptography.fernet import Fernet
from pydantic_ai import Agent

from pydantic_ai_a2a import Access, Approvals, Caller, Credentials, Messages, to_a2a

from ..behaviour.asking import Tools
from ..behaviour.refused import RAISED, SECRET
from .calls import Metadata, say, serving
from .test_errors import short

BOB = [('x-caller', 'bob')]


def identify(request: Any) -> Caller:
    return Caller(id=request.headers.get('x-caller', 'ann'))


def options_of(function: Callable[..., Any], name: str) -> dict[str, Any]:
    """Return the options of an app that calls a function."""
    if name == 'auth':
        return {'auth': function}
    if name == 'reply':
        return {'auth': identify, 'messages': Messages(reply=function)}
    if name == 'approvers':
        return {'auth': identify, 'approvals': Approvals(approvers=function)}
    access: dict[str, Any] = {name: function}
    if name == 'credentials':
        access = {name: Credentials(exchange=function, keys=[Fernet.generate_key().decode()])}
    return {'auth': identify, 'access': Access(**access)}


@pytest.mark.parametrize('raised', RAISED)
@pytest.mark.parametrize('later', [False, True], ids=['function', 'async function'])
async def test_a_function_that_raises_ends_its_call_and_nothing_else(
    raised: str, later: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> Any:
        raise RAISED[raised]()

    async def fail_later(*_: Any) -> Any:
        raise RAISED[raised]()

    async def refused(name: str, method: str, request: Any, metadata: Metadata = ()) -> None:
        caplog.clear()
        options = options_of(fail_later if later and name != 'owner' else fail, name)
        async with serving(to_a2a(Tools().agent, **options)) as agent:
            if name == 'approvers':
                request.id = (await agent.call('SendMessage', say('delete'))).task.id
            answer = await agent.refused(method, request, metadata=metadata)
        if name == 'credentials':
            assert short(answer)[0] == 'UNAVAILABLE'
        else:
            assert short(answer) == ('INTERNAL', 'Internal error.', 'INTERNAL_ERROR')
        assert SECRET not in str(answer)
        assert answer.trailing['x-correlation-id'] in caplog.text

    await refused('auth', 'SendMessage', say())
    await refused('owner', 'SendMessage', say())
    await refused('tenants', 'SendMessage', SendMessageRequest(message=say().message, tenant='acme'))
    await refused('extended_card', 'GetExtendedAgentCard', GetExtendedAgentCardRequest())
    await refused('credentials', 'SendMessage', say())
    await refused('reply', 'SendMessage', say())
    await refused('approvers', 'GetTask', GetTaskRequest(), BOB)


async def test_a_function_that_cancels_its_own_call_refuses_it() -> None:
    async def leave(_: Any) -> Caller:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)
        raise AssertionError

    async with serving(to_a2a(Agent('test'), auth=leave)) as agent:
        assert short(await agent.refused('SendMessage', say()))[0] == 'INTERNAL'
