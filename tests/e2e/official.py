"""The official client of A2A 1.0, its objects in short, and the servers that it calls."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import httpx
from a2a.client import Client, ClientConfig, create_client
from a2a.helpers import get_artifact_text, get_message_text, new_message, new_text_message
from a2a.types import Part, Role, SendMessageRequest, StreamResponse, Task, TaskState

from ..postgres import Postgres
from .server import LIMIT, ROOT, Gates, Process, process, uvicorn

OFFICIAL = 'official `a2a-sdk` 1.x client'
"""The behaviour that these tests show, by its name."""


BINDINGS = ('JSONRPC', 'HTTP+JSON', 'GRPC')
_binding = [BINDINGS[0]]


@contextmanager
def using_binding(binding: str) -> Generator[None]:
    """Let new clients speak over a binding."""
    _binding.append(binding)
    try:
        yield
    finally:
        _binding.pop()


def current_binding() -> str:
    """The binding of new clients."""
    return _binding[-1]


@contextmanager
def serving_process(app: str, *, app_dir: Path = ROOT, env: Mapping[str, str] | None = None) -> Generator[Process]:
    """The command `serve` on free ports, also with the binding of new clients."""
    grpc = ('--grpc-port', '0') if current_binding() == 'GRPC' else ()
    serve = ('-m', 'pydantic_ai_a2a', 'serve', app, '--app-dir', str(app_dir), '--port', '0', *grpc)
    with process(*serve, env=env) as server:
        assert server.url
        yield server


@asynccontextmanager
async def official_client(url: str, **config: Any) -> AsyncGenerator[Client]:
    """The official client, with the card that is at the URL."""
    config = {'grpc_channel_factory': grpc.aio.insecure_channel, **config}
    async with httpx.AsyncClient(timeout=LIMIT, verify=False) as http:
        bindings = [current_binding()]
        client = await create_client(
            url, ClientConfig(httpx_client=http, supported_protocol_bindings=bindings, **config)
        )
        async with client:
            yield client


def text_request(text: str, *, context_id: str | None = None, task_id: str | None = None) -> SendMessageRequest:
    message = new_text_message(text, context_id=context_id, task_id=task_id, role=Role.ROLE_USER)
    return SendMessageRequest(message=message)


def send(*parts: Part) -> SendMessageRequest:
    return SendMessageRequest(message=new_message(list(parts), role=Role.ROLE_USER))


async def collect(answers: AsyncIterator[StreamResponse]) -> list[StreamResponse]:
    async with asyncio.timeout(LIMIT):
        return [answer async for answer in answers]


async def task_of(answers: AsyncIterator[StreamResponse]) -> Task:
    """The one task that a client without streaming gets."""
    (answer,) = await collect(answers)
    return answer.task


def state_of(task: Task) -> str:
    return TaskState.Name(task.status.state)


def text_of(task: Task) -> str:
    (artifact,) = task.artifacts
    return get_artifact_text(artifact)


def event_summary(events: Sequence[StreamResponse]) -> list[str]:
    """What each event says, in short."""
    return [_outline(event) for event in events]


def _outline(event: StreamResponse) -> str:
    if event.HasField('task'):
        return f'task {state_of(event.task).removeprefix("TASK_STATE_")}'
    if event.HasField('status_update'):
        status = event.status_update.status
        said = get_message_text(status.message)
        return TaskState.Name(status.state).removeprefix('TASK_STATE_') + (f' {said!r}' if said else '')
    update = event.artifact_update
    marks = [name for name in ('append', 'last_chunk') if getattr(update, name)]
    return ' '.join([repr(get_artifact_text(update.artifact)), *marks])


# --- apps as they are deployed: one process with everything in memory, or one that serves and one that runs the tasks

DEPLOYMENTS = ('one process', 'two processes over PostgreSQL')


@dataclass(frozen=True)
class Deployment:
    """An app, up and listening."""

    url: str
    """Where its clients go; ends in a slash."""
    runner: Process
    """What runs its tasks."""

    @property
    def gates(self) -> Gates:
        """Where its agent waits."""
        return Gates(self.runner.url)

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Wait until what runs the tasks has written something."""
        return self.runner.wait_for(pattern)


@contextmanager
def deploy(app: str, deployment: str, postgres: Callable[[], Postgres]) -> Generator[Deployment]:
    """An app of `apps.py`."""
    over_grpc = current_binding() == 'GRPC'
    if deployment == DEPLOYMENTS[0]:
        with uvicorn(app, env={'APPS_GRPC': '1'} if over_grpc else {}) as server:
            yield Deployment(server.url, server)
        return
    with postgres().database() as url:
        store = {'APPS_BACKEND': url}
        grpc = ('--grpc-port', '0') if over_grpc else ()
        serve = ('-m', 'pydantic_ai_a2a', 'serve', app, '--no-worker', '--port', '0', *grpc)
        with process('-m', 'uvicorn', app, '--port', '0', env=store) as runner, process(*serve, env=store) as server:
            yield Deployment(server.url, runner)
