"""Serves the weather agent and talks to it with the official A2A client. It needs no API key and ends by itself.

All that is shown is checked: if the agent does anything else, the demo says so and exits with 1.
"""

from __future__ import annotations

import asyncio
import sys
import time
from json import dumps as to_json
from typing import Any

import httpx
from a2a.client import A2ACardResolver, Client, ClientConfig, create_client
from a2a.helpers import get_artifact_text, get_data_parts, get_message_text, new_text_message
from a2a.types import (
    AgentCard,
    CancelTaskRequest,
    ListTasksRequest,
    Role,
    SendMessageRequest,
    StreamResponse,
    TaskState,
)
from a2a.utils.errors import A2AError
from google.protobuf.json_format import MessageToDict
from pydantic_ai_a2a import serve

from weather_agent import app

LIVE_TEXT = 'https://pypi.org/project/pydantic-ai-a2a/#live-text-v1'
"""The extension of this package by which a client asks for the answer while the agent writes it."""
TIME_LIMIT = 60.0
"""Seconds for all of it; it takes about three."""


class Unexpected(Exception):
    """The agent did not do what the demo is there to show."""


def expect(what: str, *, got: Any, wanted: Any) -> None:
    if got != wanted:
        raise Unexpected(f'{what} should be {wanted!r}, but is {got!r}')


def heading(text: str) -> None:
    print(f'\n\033[1m{text}\033[0m' if sys.stdout.isatty() else f'\n{text}')


def state_of(state: TaskState) -> str:
    return TaskState.Name(state).removeprefix('TASK_STATE_').lower()


def ask(question: str, context_id: str | None = None) -> SendMessageRequest:
    print(f'   you    {question}')
    return SendMessageRequest(message=new_text_message(question, context_id=context_id, role=Role.ROLE_USER))


async def show_card(http: httpx.AsyncClient, url: str) -> AgentCard:
    heading('The agent card')
    card = await A2ACardResolver(http, url).get_agent_card()
    interface = card.supported_interfaces[0]
    print(f'   {card.name}: {card.description}')
    print(f'   speaks A2A {interface.protocol_version} over {interface.protocol_binding} at {interface.url}')
    print(f'   answers with {" and ".join(card.default_output_modes)}')
    expect('the URL on the card', got=interface.url, wanted=url)
    expect('its output modes', got=[*card.default_output_modes], wanted=['text/plain', 'application/json'])
    expect('its streaming capability', got=card.capabilities.streaming, wanted=True)
    return card


async def get_data(client: Client, question: str, wanted: dict[str, Any], context_id: str | None = None) -> str:
    """Ask for structured data, and wait for it; the id of the conversation."""
    answers = [answer async for answer in client.send_message(ask(question, context_id))]
    expect('the number of answers', got=len(answers), wanted=1)
    task = answers[0].task
    expect('the task', got=state_of(task.status.state), wanted='completed')
    part = task.artifacts[0].parts[0]
    (data,) = get_data_parts([part])
    metadata = MessageToDict(part.metadata)
    print(f'   agent  {to_json(data["result"], sort_keys=True)}, a {metadata["python_type"]}')
    expect('the data', got=data['result'], wanted=wanted)
    expect('the required fields of its schema', got=metadata['json_schema']['required'], wanted=[*wanted])
    return task.context_id


def show_answer(event: StreamResponse, shown: str) -> str:
    """Print what an event of a stream adds to the shown answer; the answer after it."""
    if not event.HasField('artifact_update'):
        return shown
    update = event.artifact_update
    answer = (shown if update.append else '') + get_artifact_text(update.artifact)
    print(answer.removeprefix(shown), end='', flush=True)
    return answer


async def watch(client: Client, question: str, wanted: str, context_id: str | None = None) -> None:
    """Ask for text, and print it while the agent writes it."""
    message = ask(question, context_id)
    print('   agent  ', end='')
    events: list[StreamResponse] = []
    answer = ''
    async for event in client.send_message(message):
        events.append(event)
        answer = show_answer(event, answer)
    print()
    expect('the text', got=answer, wanted=wanted)
    pieces = [event for event in events if event.HasField('artifact_update') and not event.artifact_update.last_chunk]
    expect('that it came in pieces', got=len(pieces) > 1, wanted=True)
    expect('the last event', got=state_of(events[-1].status_update.status.state), wanted='completed')


async def watch_and_cancel(client: Client, question: str) -> None:
    """Ask for something that takes hours, and change one's mind when the agent says so."""
    told, last = 0.0, ''
    async for event in client.send_message(ask(question)):
        update = event.status_update
        if note := get_message_text(update.status.message):
            print(f'   agent  {note}')
            print('   you    cancel it')
            told = time.monotonic()
            canceled = await client.cancel_task(CancelTaskRequest(id=update.task_id))
            expect('the cancelled task', got=state_of(canceled.status.state), wanted='canceled')
        last = state_of(update.status.state)
    print(f'   the task is {last}, {1000 * (time.monotonic() - told):.0f} ms later')
    expect('the last event', got=last, wanted='canceled')


async def show_tasks(client: Client) -> None:
    heading('All tasks, the newest first')
    tasks = (await client.list_tasks(ListTasksRequest(include_artifacts=True))).tasks
    for task in tasks:
        question = get_message_text(task.history[0])
        print(f'   {task.id}  {state_of(task.status.state):9}  {question}')
    states = [state_of(task.status.state) for task in tasks]
    expect('their states', got=states, wanted=['canceled', 'completed', 'completed', 'completed', 'completed'])


async def talk(http: httpx.AsyncClient, url: str) -> None:
    """The whole conversation."""
    card = await show_card(http, url)
    plain = await create_client(card, ClientConfig(httpx_client=http, streaming=False))
    streaming = await create_client(card, ClientConfig(httpx_client=http))

    heading('A question; the agent calls its tools and answers with structured data')
    paris = {'city': 'Paris', 'temperature': 21.0, 'sky': 'sunny'}
    context_id = await get_data(plain, 'How is the weather in Paris?', paris)

    heading('The same conversation goes on')
    rome = {'city': 'Rome', 'temperature': 27.5, 'sky': 'sunny'}
    await get_data(plain, 'And in Rome?', rome, context_id)
    warmer = 'It is warmer in Rome, with 27.5 °C against 21.0 °C in Paris.'
    await watch(streaming, 'Which of them is warmer?', warmer, context_id)

    heading('Small talk, streamed as it is written')
    hello = 'Hello! I am the weather agent. Ask me how the weather is in Oslo, in Paris or in Rome.'
    await watch(streaming, 'Hello, who are you?', hello)

    heading('A slow task, cancelled')
    await watch_and_cancel(streaming, 'What is the average temperature in Oslo over 2 hours?')

    await show_tasks(plain)


async def main(url: str) -> None:
    headers = {'A2A-Extensions': LIVE_TEXT}
    async with asyncio.timeout(TIME_LIMIT), httpx.AsyncClient(timeout=TIME_LIMIT, headers=headers) as http:
        await talk(http, url)


if __name__ == '__main__':
    try:
        with serve(app) as server:
            print(f'The weather agent answers at {server.url}')
            asyncio.run(main(server.url))
    except (Unexpected, A2AError, TimeoutError) as error:
        sys.exit(f'\nThe demo failed: {error!r}')
    print('\nEverything was as expected.')
