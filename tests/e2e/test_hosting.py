"""The ways to serve an app: uvicorn with either loop, a script, a part of a larger application."""

from __future__ import annotations

import signal
from pathlib import Path

import httpx
import pytest
from a2a.helpers import get_data_parts
from a2a.types import CancelTaskRequest, GetExtendedAgentCardRequest

from ..behaviour.rows import covers
from .official import OFFICIAL, collect, official_client, outline, say, state_of, task_of, text_of
from .server import LIMIT, ROOT, SERVERS, Gates, process, send_streaming, uvicorn

EXAMPLES = ('--app-dir', str(ROOT / 'examples'))


@SERVERS
@covers(OFFICIAL)
async def test_uvicorn_serves_an_app_with_either_loop(options: tuple[str, ...]) -> None:
    with uvicorn('tests.e2e.apps:app', *options) as server:
        async with official_client(server.url) as client, official_client(server.url, streaming=False) as plain:
            task = await task_of(plain.send_message(say('say one')))
            events = await collect(client.send_message(say('recall', context_id=task.context_id)))
            running = client.send_message(say('use never'))
            started = (await anext(running)).task
            await Gates(server.url).reached('never')
            canceled = await client.cancel_task(CancelTaskRequest(id=started.id))
            rest = await collect(running)
    assert outline(events)[2] == "'Before, you said: say one.'"
    assert state_of(canceled) == 'TASK_STATE_CANCELED'
    assert outline(rest)[-1] == 'CANCELED'


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
async def test_a_script_serves_until_a_signal_and_says_where(number: signal.Signals, tmp_path: Path) -> None:
    script = tmp_path / 'script.py'
    script.write_text(
        'from pydantic_ai import Agent\n'
        'from pydantic_ai_a2a import run, to_a2a\n'
        "run(to_a2a(Agent('test')), port=0)\n"
        "print('and ends')\n"
    )
    with process(str(script), cwd=tmp_path) as server:
        async with official_client(server.url, streaming=False) as client:
            task = await task_of(client.send_message(say('hello')))
        server.signal(number)
        exit_code = await server.ended()
    assert text_of(task) == 'success (no tool calls)'
    assert (exit_code, 'and ends' in server.output) == ((0, True) if number == signal.SIGINT else (-number, False))
    assert 'Traceback' not in server.output, server.output


@covers(OFFICIAL, 'mounted under FastAPI / Starlette', 'card behind a proxy or mount')
async def test_two_agents_are_served_within_one_fastapi_application() -> None:
    with uvicorn('mounted:app', *EXAMPLES) as server:
        async with (
            official_client(f'{server.url}weather', streaming=False) as weather,
            official_client(f'{server.url}parrot/') as parrot,
            httpx.AsyncClient(timeout=LIMIT) as http,
        ):
            card = await weather.get_extended_agent_card(GetExtendedAgentCardRequest())
            report = await task_of(weather.send_message(say('How is the weather in Rome?')))
            squawk = await collect(parrot.send_message(say('Hello')))
            own = await http.get(f'{server.url}agents')
    assert {interface.url for interface in card.supported_interfaces} == {f'{server.url}weather/'}
    assert get_data_parts(report.artifacts[0].parts) == [
        {'result': {'city': 'Rome', 'temperature': 27.5, 'sky': 'sunny'}}
    ]
    assert outline(squawk)[-1] == 'COMPLETED'
    assert own.json() == ['/weather', '/parrot']


@covers('POST to the mount without trailing slash', 'mounted under FastAPI / Starlette')
async def test_a_mounted_agent_answers_with_and_without_the_final_slash() -> None:
    with uvicorn('tests.e2e.apps:parent') as server:
        async with httpx.AsyncClient(timeout=LIMIT, headers={'A2A-Version': '1.0'}) as http:
            answers = [
                await http.post(f'{server.url}{path}', json=send_streaming('say it')) for path in ('puppet', 'puppet/')
            ]
    assert [(answer.status_code, answer.text.count('data: ')) for answer in answers] == [(200, 4), (200, 4)]
