from __future__ import annotations

import asyncio
import json

import httpx
import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models.function import AgentInfo, FunctionModel
from starlette.applications import Starlette

from pydantic_ai_a2a import Workers, mount, serve, to_a2a

from ..client import LIMIT, message


@pytest.mark.parametrize('mounted', [False, True])
def test_closing_a_server_ends_the_open_streams_of_the_app_and_of_what_is_mounted_in_it(mounted: bool) -> None:
    async def never_answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return await asyncio.get_running_loop().create_future()

    app = to_a2a(Agent(FunctionModel(never_answer)), workers=Workers(drain_grace=0.01))
    parent = Starlette()
    mount(parent, '/agent', app)
    request = {'jsonrpc': '2.0', 'id': 1, 'method': 'SendStreamingMessage', 'params': {'message': message()}}

    with serve(parent if mounted else app) as server:
        url = f'{server.url}agent/' if mounted else server.url
        with httpx.stream('POST', url, json=request, timeout=LIMIT) as response:
            events = (json.loads(line[5:])['result'] for line in response.iter_lines() if line.startswith('data:'))
            states = [_state(next(events)), _state(next(events))]
            server.close()
            states += map(_state, events)
    assert states == ['TASK_STATE_SUBMITTED', 'TASK_STATE_WORKING', 'TASK_STATE_FAILED']


def _state(event: dict[str, dict[str, dict[str, str]]]) -> str:
    [update] = event.values()
    return update['status']['state']
