"""Serves the weather agent and talks to it with the official A2A client. It needs no API key and ends by itself.

Everything that is printed was checked: if the agent does not do what is shown, the demo says so and exits with 1.
"""

from __future__ import annotations

import asyncio
import sys
import time

from a2a.client import Client, ClientConfig, create_client
from a2a.helpers import get_artifact_text, get_data_parts, get_message_text, new_text_message
from a2a.types import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    Role,
    SendMessageRequest,
    StreamResponse,
    Task,
    TaskState,
)
from weather_agent import app

from pydantic_ai_a2a import serve

TIME_LIMIT = 60.0


class Unexpected(Exception):
    """The agent did something else than the demo shows."""


def expect(holds: bool, what: str) -> None:
    if not holds:
        raise Unexpected(what)


def heading(text: str) -> None:
    print(f'\n\033[1m{text}\033[0m' if sys.stdout.isatty() else f'\n{text}')


def state(task: Task) -> str:
    return TaskState.Name(task.status.state).removeprefix('TASK_STATE_').lower()


def request(text: str, context_id: str | None = None) -> SendMessageRequest:
    print(f'   you:   {text}')
    return SendMessageRequest(message=new_text_message(text, context_id=context_id, role=Role.ROLE_USER))


async def ask(client: Client, text: str, context_id: str | None = None) -> Task:
    """Send a message and wait for its task to end."""
    answers = [answer async for answer in client.send_message(request(text, context_id))]
    expect(len(answers) == 1 and answers[0].HasField('task'), 'one task as the answer')
    return answers[0].task


async def ask_for_weather(client: Client, text: str, context_id: str | None = None) -> Task:
    """Ask a question that is answered with structured data."""
    task = await ask(client, text, context_id)
    expect(state(task) == 'completed', f'a completed task, not one that is {state(task)}')
    (part,) = task.artifacts[0].parts
    (data,) = get_data_parts([part])
    print(f'   agent: {data["result"]}  ({part.metadata["python_type"]}, {part.media_type})')
    expect(part.metadata['json_schema']['required'] == ['city', 'temperature', 'sky'], 'a schema of the data')
    return task


def delta(event: StreamResponse) -> str | None:
    """The text that an event of a stream adds to the answer."""
    if not event.HasField('artifact_update'):
        return None
    return get_artifact_text(event.artifact_update.artifact)


async def ask_and_watch(client: Client, text: str, context_id: str | None = None) -> str:
    """Send a message and print its answer while it is written."""
    deltas: list[str] = []
    states: list[int] = []
    print_request = request(text, context_id)
    print('   agent: ', end='', flush=True)
    async for event in client.send_message(print_request):
        if text := delta(event):
            deltas.append(text)
            print(text, end='', flush=True)
        if event.HasField('status_update'):
            states.append(event.status_update.status.state)
    print(f' ({len(deltas)} deltas)')
    expect(len(deltas) > 3, 'an answer in several deltas')
    expect(states[-1:] == [TaskState.TASK_STATE_COMPLETED], 'a stream that ends with the completed task')
    return ''.join(deltas)


async def show_card(url: str) -> None:
    """The client has fetched the card by now: show what it says."""
    async with await create_client(url) as client:
        card = client._card  # pyright: ignore
        print(card)


async def cancel(watcher: Client, caller: Client) -> None:
    """Cancel a task that would take two hours, as soon as it says so."""
    canceled = None
    async for event in watcher.send_message(request('What is the average temperature in Oslo over 2 hours?')):
        update = event.status_update
        if note := get_message_text(update.status.message):
            print(f'   agent: {note}')
            started = time.monotonic()
            canceled = await caller.cancel_task(CancelTaskRequest(id=update.task_id))
            print(f'   you cancel; the task is {state(canceled)} after {time.monotonic() - started:.3f} s')
