"""The examples and demos, in processes of their own: what they print, and what the official client gets from them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from a2a.client import Client, ClientConfig, create_client
from a2a.helpers import get_data_parts, new_data_part, new_text_part
from a2a.types import CancelTaskRequest, GetTaskRequest, Part, SendMessageRequest, Task
from a2a.utils.errors import InvalidParamsError
from inline_snapshot import snapshot

from pydantic_ai_a2a.wire.extensions.card_schemas import SCHEMAS_URI

from ..behaviour.promised_behaviours import covers
from ..temporal import temporal_program
from .official import OFFICIAL, collect, event_summary, official_client, send, state_of, task_of, text_of, text_request
from .server import LIMIT, ROOT, Process, process, uvicorn

EXAMPLES = ('--app-dir', str(ROOT / 'examples'))


@asynccontextmanager
async def serve_example(
    name: str, *, streaming: bool = False, env: Mapping[str, str] | None = None
) -> AsyncGenerator[tuple[Process, Client]]:
    """A server of an example, and a client of it."""
    with uvicorn(f'{name}:app', *EXAMPLES, env=env) as server:
        async with official_client(server.url, streaming=streaming) as client:
            yield server, client


def pending_call(parts: Sequence[Part]) -> dict[str, Any]:
    """The only call that a status message tells of."""
    [data] = get_data_parts(parts)
    [call] = data['pending']
    return call


@covers(OFFICIAL)
async def test_several_agents_example_serves_each_agent() -> None:
    with uvicorn('several_agents:app', *EXAMPLES) as server:
        async with (
            official_client(f'{server.url}translator/', streaming=False) as translator,
            official_client(f'{server.url}summarizer/', streaming=False) as summarizer,
        ):
            tasks = [
                await task_of(client.send_message(text_request('Good morning.'))) for client in (translator, summarizer)
            ]
    assert [text_of(task) for task in tasks] == ['Bonjour.', 'A greeting.']


@covers(OFFICIAL)
async def test_approvals_example_takes_result_of_external_call() -> None:
    async with serve_example('approvals') as (_, client):
        task = await task_of(client.send_message(text_request('weigh the parcel')))
        call = pending_call(task.status.message.parts)
        request = send(new_data_part({'callAnswers': [{'id': call['id'], 'decision': 'result', 'result': '2 kg'}]}))
        request.message.task_id = task.id
        done = await task_of(client.send_message(request))
    assert (call['kind'], call['args'], text_of(done)) == ('external', {'what': 'the parcel'}, '2 kg')


@covers(OFFICIAL)
async def test_sign_in_example_continues_after_sign_in() -> None:
    async with (
        serve_example('sign_in', streaming=True) as (server, client),
        httpx.AsyncClient(timeout=LIMIT) as browser,
    ):
        events = client.send_message(text_request('read ada'))
        *_, waits = [await anext(events) for _ in range(3)]
        call = pending_call(waits.status_update.status.message.parts)
        sign_in = f'{server.url.rstrip("/")}{call["metadata"]["url"]}'
        pages = [await browser.get(sign_in) for _ in range(2)]
        rest = event_summary(await collect(events))
        others = text_request('read bob')
        others.message.context_id = waits.status_update.context_id
        others = event_summary(await collect(client.send_message(others)))
    assert (call['kind'], call['metadata']['schemes'], {page.status_code for page in pages}) == (
        'authorization',
        ['sso'],
        {200},
    )
    assert event_summary([waits]) == ["AUTH_REQUIRED 'Please sign in.'"]
    assert (rest, others) == snapshot(
        (
            ['WORKING', "'Lunch?' last_chunk", 'COMPLETED'],
            ['task SUBMITTED', 'WORKING', "REJECTED 'There is no mailbox of bob.'"],
        )
    )


@covers(OFFICIAL)
async def test_typed_input_example_validates_data() -> None:
    async with serve_example('typed_input') as (server, client):
        trip = send(new_data_part({'city': 'Rome', 'days': 2}), new_text_part('Slowly.'))
        done = await task_of(client.send_message(trip))
        with pytest.raises(InvalidParamsError, match=r'message\.parts\[0\]\.data\.days'):
            await task_of(client.send_message(send(new_data_part({'city': 'Rome', 'days': 0}))))
        async with httpx.AsyncClient(timeout=LIMIT) as http:
            card = (await http.get(f'{server.url}.well-known/agent-card.json')).json()
    assert text_of(done).splitlines() == ['Day 1: Rome', 'Day 2: Rome', 'Slowly.']
    [schemas] = [item['params'] for item in card['capabilities']['extensions'] if item['uri'] == SCHEMAS_URI]
    assert [*schemas['inputSchema']['properties']] == ['city', 'days']


async def test_hello_example_answers(tmp_path: Path) -> None:
    source = (ROOT / 'examples' / 'hello.py').read_text()
    assert "'openai:gpt-5.2'" in source
    (tmp_path / 'hello.py').write_text(source.replace('openai:gpt-5.2', 'test'))  # the only model without a provider
    with uvicorn('hello:app', '--app-dir', str(tmp_path)) as server:
        async with official_client(server.url, streaming=False) as client:
            task = await task_of(client.send_message(text_request('Hello')))
    assert text_of(task) == 'success (no tool calls)'


async def test_weather_example_declines_unknown_questions() -> None:
    async with serve_example('weather_agent') as (_, client):
        tasks = [
            await task_of(client.send_message(text_request(text)))
            for text in ('How is the weather in Atlantis?', 'What is love?', 'Which of them is warmer?')
        ]
    assert [text_of(task) for task in tasks] == [
        'I cannot tell. There is no weather station in Atlantis.',
        'I only know about the weather. Ask me how it is in Oslo, in Paris or in Rome.',
        'I only know about the weather. Ask me how it is in Oslo, in Paris or in Rome.',
    ]


async def test_approvals_example_asks_before_acting() -> None:
    async with serve_example('approvals') as (_, client):
        said: list[str] = []
        for wish, answer in (
            ('delete report.txt', 'no: I need it'),
            ('delete a.txt', 'yes'),
            ('order a pizza', 'hot'),
        ):
            task = await task_of(client.send_message(text_request(wish)))
            said.append(task.status.message.parts[0].text)
            said.append(text_of(await task_of(client.send_message(text_request(answer, task_id=task.id)))))
    assert said == snapshot(
        [
            """\
May I call delete_file {"path":"report.txt"}?
Write "yes" to approve the call, or "no" or "no: reason" to deny it.\
""",
            'I need it',
            """\
May I call delete_file {"path":"a.txt"}?
Write "yes" to approve the call, or "no" or "no: reason" to deny it.\
""",
            'a.txt is deleted.',
            'What kind of a pizza?',
            'hot',
        ]
    )


async def test_own_storage_example_keeps_tasks_after_restart(
    tmp_path: Path,
) -> None:
    env = {'MEMORY_FILE': str(tmp_path / 'memory.db')}
    async with serve_example('own_storage', env=env) as (_, client):
        first = await task_of(client.send_message(text_request('my name is Ann')))
    async with serve_example('own_storage', env=env) as (_, client):
        same = await client.get_task(GetTaskRequest(id=first.id))
        following = await task_of(client.send_message(text_request('who am I?', context_id=first.context_id)))
        other = await task_of(client.send_message(text_request('who am I?')))
    assert state_of(first) == state_of(same) == 'TASK_STATE_COMPLETED'
    same.status.CopyFrom(first.status)
    assert same == first
    assert [text_of(task) for task in (first, following, other)] == [
        'So far you said: my name is Ann.',
        'So far you said: my name is Ann; who am I?.',
        'So far you said: who am I?.',
    ]


def test_remote_tools_example_passes_on_user_answers() -> None:
    with process('examples/remote_tools.py') as example:
        assert example.exit_code() == 0, example.output
    question = "The clerk asks for approval of delete_file with {'path': 'report.txt'}."
    assert example.output.splitlines() == [
        *[question, 'The user approves.', 'report.txt is deleted.'],
        *[question, 'The user denies.', 'The report is still needed.'],
    ]


def test_remote_agent_example_gets_typed_output() -> None:
    with process('examples/remote_agent.py') as example:
        assert example.exit_code() == 0, example.output
    assert example.output.splitlines() == [
        "city='Paris' temperature=21.0 sky='sunny'",
        "city='Rome' temperature=27.5 sky='sunny'",
        'Hello! I am the weather agent. Ask me how the weather is in Oslo, in Paris or in Rome.',
    ]


def test_client_tools_example_reads_notes_of_client() -> None:
    with process('examples/client_tools.py') as example:
        assert example.exit_code() == 0, example.output
    assert example.output.splitlines() == ['The note says: Buy milk.', 'The note says: Call Ada.']


def test_examples_readme_lists_every_example() -> None:
    listed = re.findall(r'^\| `([^`]+)`', (ROOT / 'examples/README.md').read_text(), re.MULTILINE)
    examples = ROOT / 'examples'
    names = [path.name for path in examples.iterdir() if path.suffix == '.py' or (path / 'README.md').exists()]
    notebooks = [path.relative_to(examples).as_posix() for path in examples.rglob('*.ipynb')]
    assert sorted(listed) == sorted(names + notebooks)


def test_signed_webhooks_example_refuses_replays_and_changes() -> None:
    with process('examples/signed_webhooks.py') as running:
        assert running.exit_code() == 0
    assert running.output.splitlines() == [
        'verified statusUpdate',
        'verified artifactUpdate',
        'verified statusUpdate',
        '401 The notification is repeated: a request with the same signature came before.',
        '401 The body of the notification was changed.',
    ]


@asynccontextmanager
async def customer(server: Process, name: str, **headers: str) -> AsyncGenerator[Any]:
    """What sends as a customer of the shop."""
    known = {'Authorization': '-'.join([f'Bearer {name}', *[name] * 4]), **headers}
    async with httpx.AsyncClient(timeout=LIMIT, headers=known) as http:
        client = await create_client(server.url, ClientConfig(httpx_client=http, streaming=False))

        async def order(what: str) -> Task:
            return await task_of(client.send_message(text_request(what)))

        yield order


@covers(OFFICIAL)
async def test_dependencies_example_keeps_completed_orders_per_customer() -> None:
    with uvicorn('dependencies:app', *EXAMPLES) as server:
        async with customer(server, 'ann', **{'X-Currency': 'NOK'}) as ann, customer(server, 'bob') as bob:
            tasks = [await ann('skis'), await bob('a book'), await ann('nothing'), await ann('boots')]
    assert [state_of(task) for task in tasks] == [
        f'TASK_STATE_{state}' for state in ('COMPLETED', 'COMPLETED', 'FAILED', 'COMPLETED')
    ]
    assert [text_of(task) for task in tasks if task.artifacts] == [
        'skis in NOK',
        'a book in EUR',
        'skis in NOK, boots in NOK',
    ]


@covers(OFFICIAL)
async def test_hooks_example_reports_how_runs_end() -> None:
    async with serve_example('hooks') as (server, client):
        await task_of(client.send_message(text_request('hi')))
        server.wait_for('completed: hi')
        await task_of(client.send_message(text_request('fail')))
        server.wait_for(r'failed: internal: It was told to\.')
        request = text_request('wait')
        request.configuration.return_immediately = True
        task = await task_of(client.send_message(request))
        await wait_until_working(client, task.id)
        await client.cancel_task(CancelTaskRequest(id=task.id))
        server.wait_for(rf'canceled: {task.id}\.1')


async def wait_until_working(client: Client, task_id: str) -> None:
    """Wait until a task runs."""
    async with asyncio.timeout(LIMIT):
        while state_of(await client.get_task(GetTaskRequest(id=task_id))) != 'TASK_STATE_WORKING':
            pass


def request_about(text: str, *tasks: Task) -> SendMessageRequest:
    request = text_request(text)
    request.message.reference_task_ids.extend(task.id for task in tasks)
    return request


@covers(OFFICIAL)
async def test_references_example_uses_artifacts_of_referenced_task() -> None:
    async with serve_example('references') as (_, client):
        first = await task_of(client.send_message(text_request('milk')))
        second = await task_of(client.send_message(request_about('bread', first)))
    assert second.context_id != first.context_id
    assert text_of(second).splitlines() == [
        f'- -----BEGIN ARTIFACTS task="{first.id}"-----',
        '- - milk',
        f'- -----END ARTIFACTS task="{first.id}"-----',
        '- bread',
    ]


@covers(OFFICIAL)
def test_demo_shows_every_operation_and_exits() -> None:
    with process('examples/demo.py') as demo:
        assert demo.exit_code() == 0, demo.output
    shown = re.sub(r':\d{4,5}/', ':<port>/', demo.output)
    shown = re.sub(r'[0-9a-f]{32}', '<task>', shown)
    assert re.sub(r'\d+ ms', '<n> ms', shown) == snapshot("""\
The weather agent answers at http://127.0.0.1:<port>/

The agent card
   Weather Agent: Tells the weather in some cities of Europe, as it is now or averaged over the next hours.
   speaks A2A 1.0 over JSONRPC at http://127.0.0.1:<port>/
   answers with text/plain and application/json

A question; the agent calls its tools and answers with structured data
   you    How is the weather in Paris?
   agent  {"city": "Paris", "sky": "sunny", "temperature": 21.0}, a Weather

The same conversation goes on
   you    And in Rome?
   agent  {"city": "Rome", "sky": "sunny", "temperature": 27.5}, a Weather
   you    Which of them is warmer?
   agent  It is warmer in Rome, with 27.5 °C against 21.0 °C in Paris.

Small talk, streamed as it is written
   you    Hello, who are you?
   agent  Hello! I am the weather agent. Ask me how the weather is in Oslo, in Paris or in Rome.

A slow task, cancelled
   you    What is the average temperature in Oslo over 2 hours?
   agent  I measure for 2 hours; that takes its time.
   you    cancel it
   the task is canceled, <n> ms later

All tasks, the newest first
   <task>  canceled   What is the average temperature in Oslo over 2 hours?
   <task>  completed  Hello, who are you?
   <task>  completed  Which of them is warmer?
   <task>  completed  And in Rome?
   <task>  completed  How is the weather in Paris?

Everything was as expected.
""")


DEMO_WITH_WRONG_DATA = """
import runpy, sys
sys.path.insert(0, 'examples')
import weather_agent
weather_agent.STATIONS['ROM'] = ('Rome', -3.0, 'snowy')
runpy.run_path('examples/demo.py', run_name='__main__')
"""


def test_demo_reports_unexpected_answer_in_last_line() -> None:
    with process('-c', DEMO_WITH_WRONG_DATA) as demo:
        assert demo.exit_code() == 1, demo.output
    failure = demo.output.splitlines()[-1]
    assert re.match(r"The demo failed: Unexpected\(.the data should be {'city': 'Rome', 'temperature': 27.5", failure)
    assert 'Traceback' not in demo.output


def test_temporal_demo_answers_after_server_is_killed() -> None:
    temporal_program()  # the demo starts it
    with process('examples/temporal/demo.py') as demo:
        assert demo.exit_code() == 0, demo.output
    assert demo.output == snapshot("""\
The first server has started a workflow.
The hotel is being booked, and the server is killed.
The second server answers: two trains to Porto; a room in Porto
Calls of tools: ['find_trains', 'book_hotel']
""")
