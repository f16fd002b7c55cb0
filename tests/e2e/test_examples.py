"""Examples of what agents do beyond text, served by uvicorn and used by the official client."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from a2a.client import Client
from a2a.helpers import get_data_parts, new_data_part, new_text_part
from a2a.types import Part
from a2a.utils.errors import InvalidParamsError
from inline_snapshot import snapshot

from pydantic_ai_a2a.card import SCHEMAS_URI

from ..behaviour.rows import covers
from .official import OFFICIAL, collect, official_client, outline, say, send, task_of, text_of
from .server import LIMIT, ROOT, Process, process, uvicorn


@asynccontextmanager
async def example(name: str, *, streaming: bool = False) -> AsyncGenerator[tuple[Process, Client]]:
    """A server of an example, and a client of it."""
    with uvicorn(f'{name}:app', '--app-dir', str(ROOT / 'examples')) as server:
        async with official_client(server.url, streaming=streaming) as client:
            yield server, client


def asked(parts: Sequence[Part]) -> dict[str, Any]:
    """The only call that a status message tells of."""
    [data] = get_data_parts(parts)
    [call] = data['pending']
    return call


@covers(OFFICIAL)
async def test_each_of_several_agents_answers_at_its_own_url() -> None:
    with uvicorn('several_agents:app', '--app-dir', str(ROOT / 'examples')) as server:
        async with (
            official_client(f'{server.url}translator/', streaming=False) as translator,
            official_client(f'{server.url}summarizer/', streaming=False) as summarizer,
        ):
            tasks = [await task_of(client.send_message(say('Good morning.'))) for client in (translator, summarizer)]
    assert [text_of(task) for task in tasks] == ['Bonjour.', 'A greeting.']


@covers(OFFICIAL)
async def test_the_clerk_is_told_what_others_have_weighed() -> None:
    async with example('approvals') as (_, client):
        task = await task_of(client.send_message(say('weigh the parcel')))
        call = asked(task.status.message.parts)
        request = send(new_data_part({'callAnswers': [{'id': call['id'], 'decision': 'result', 'result': '2 kg'}]}))
        request.message.task_id = task.id
        done = await task_of(client.send_message(request))
    assert (call['kind'], call['args'], text_of(done)) == ('external', {'what': 'the parcel'}, '2 kg')


@covers(OFFICIAL)
async def test_the_mailbox_goes_on_once_its_user_has_signed_in_and_there_is_none_of_others() -> None:
    async with example('sign_in', streaming=True) as (server, client), httpx.AsyncClient(timeout=LIMIT) as browser:
        events = client.send_message(say('read ada'))
        *_, waits = [await anext(events) for _ in range(3)]
        call = asked(waits.status_update.status.message.parts)
        sign_in = f'{server.url.rstrip("/")}{call["metadata"]["url"]}'
        pages = [await browser.get(sign_in) for _ in range(2)]
        rest = outline(await collect(events))
        others = say('read bob')
        others.message.context_id = waits.status_update.context_id
        others = outline(await collect(client.send_message(others)))
    assert (call['kind'], call['metadata']['schemes'], {page.status_code for page in pages}) == (
        'authorization',
        ['sso'],
        {200},
    )
    assert outline([waits]) == ["AUTH_REQUIRED 'Please sign in.'"]
    assert (rest, others) == snapshot(
        (
            ['WORKING', "'Lunch?' last_chunk", 'COMPLETED'],
            ['task SUBMITTED', 'WORKING', "REJECTED 'There is no mailbox of bob.'"],
        )
    )


@covers(OFFICIAL)
async def test_the_travel_agent_plans_from_data_and_refuses_what_does_not_fit() -> None:
    async with example('typed_input') as (server, client):
        trip = send(new_data_part({'city': 'Rome', 'days': 2}), new_text_part('Slowly.'))
        done = await task_of(client.send_message(trip))
        with pytest.raises(InvalidParamsError, match=r'message\.parts\[0\]\.data\.days'):
            await task_of(client.send_message(send(new_data_part({'city': 'Rome', 'days': 0}))))
        async with httpx.AsyncClient(timeout=LIMIT) as http:
            card = (await http.get(f'{server.url}.well-known/agent-card.json')).json()
    assert text_of(done).splitlines() == ['Day 1: Rome', 'Day 2: Rome', 'Slowly.']
    [schemas] = [item['params'] for item in card['capabilities']['extensions'] if item['uri'] == SCHEMAS_URI]
    assert [*schemas['inputSchema']['properties']] == ['city', 'days']


def test_the_answer_of_the_user_reaches_the_tool_of_a_remote_agent() -> None:
    with process('examples/remote_tools.py') as example:
        assert example.exit_code() == 0, example.output
    question = "The clerk asks for approval of delete_file with {'path': 'report.txt'}."
    assert example.output.splitlines() == [
        *[question, 'The user approves.', 'report.txt is deleted.'],
        *[question, 'The user denies.', 'The report is still needed.'],
    ]


def test_a_remote_agent_answers_with_typed_output_in_a_conversation_and_in_a_stream() -> None:
    with process('examples/remote_agent.py') as example:
        assert example.exit_code() == 0, example.output
    assert example.output.splitlines() == [
        "city='Paris' temperature=21.0 sky='sunny'",
        "city='Rome' temperature=27.5 sky='sunny'",
        'Hello! I am the weather agent. Ask me how the weather is in Oslo, in Paris or in Rome.',
    ]


def test_an_agent_reads_the_notes_of_its_client() -> None:
    with process('examples/client_tools.py') as example:
        assert example.exit_code() == 0, example.output
    assert example.output.splitlines() == ['The note says: Buy milk.', 'The note says: Call Ada.']


def test_the_readme_of_the_examples_lists_each_example() -> None:
    listed = re.findall(r'^\| `([^`]+)`', (ROOT / 'examples/README.md').read_text(), re.MULTILINE)
    examples = ROOT / 'examples'
    names = [path.name for path in examples.iterdir() if path.suffix == '.py' or (path / 'README.md').exists()]
    notebooks = [path.relative_to(examples).as_posix() for path in examples.rglob('*.ipynb')]
    assert sorted(listed) == sorted(names + notebooks)


def test_a_receiver_of_signed_webhooks_refuses_repeated_and_changed_requests() -> None:
    with process('examples/signed_webhooks.py') as running:
        assert running.exit_code() == 0
    assert running.output.splitlines() == [
        'verified statusUpdate',
        'verified artifactUpdate',
        'verified statusUpdate',
        '401 The notification is repeated: a request with the same signature came before.',
        '401 The body of the notification was changed.',
    ]
