"""Steps of the tests of webhooks: configurations, deliveries and events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic_ai_a2a.protocol import stored
from pydantic_ai_a2a.settings import Retention
from pydantic_ai_a2a.store.ports import Backend, Delivery, Outbox, PushConfig, PushConfigs, Submission, Takes
from pydantic_ai_a2a.types import TaskEvent

from .values import AT, LEASE, LIMIT, OWNER, message, run, submit

__all__ = (
    'artifact',
    'canceled',
    'config',
    'configs_of',
    'fail',
    'finished',
    'in_short',
    'lease',
    'outbox_of',
    'piece',
    'register',
    'sweep',
    'told',
    'with_config',
)


def config(name: str = 'c', takes: Takes = 'artifacts', body: bytes = b'secret') -> PushConfig:
    return PushConfig(id=name, version='1.0', takes=takes, body=body)


def configs_of(backend: Backend) -> PushConfigs:
    assert backend.push_configs is not None
    return backend.push_configs


def outbox_of(backend: Backend) -> Outbox:
    assert backend.outbox is not None
    return backend.outbox


async def register(backend: Backend, *names: str, task_id: str = 't', **fields: Any) -> None:
    for name in names:
        await configs_of(backend).create(task_id, OWNER, config(name, **fields), limit=10)


async def lease(
    backend: Backend, *, lease: int = LEASE, limit: int = 100, held: Mapping[str, int] | None = None
) -> list[Delivery]:
    leased = await outbox_of(backend).lease(lease=lease, limit=limit, held=held or {})
    return [*leased.deliveries]


async def sweep(backend: Backend, retention: Retention, *, at: int = AT) -> None:
    """Sweep until no row is due."""
    async with asyncio.timeout(LIMIT):
        while await backend.housekeeping.sweep(retention, at=at):
            pass


async def told(backend: Backend) -> dict[str, list[str]]:
    """Deliver all due events, and return a short text of the deliveries of each configuration."""
    heard: dict[str, list[str]] = {}
    while deliveries := await lease(backend):
        for delivery in deliveries:
            heard.setdefault(delivery.config.id, []).append(in_short(delivery.event))
            await outbox_of(backend).done(delivery)
    return heard


def in_short(event: TaskEvent) -> str:
    if event.state is not None:
        return f'{event.n} {event.state}'
    update = json.loads(event.payload)['artifactUpdate']
    return f'{event.n} {"".join(part["text"] for part in update["artifact"]["parts"])}'


def artifact(text: str) -> bytes:
    return json.dumps({'artifactId': 'a', 'parts': [{'text': text}]}).encode()


def piece(n: int, text: str, *, append: bool = False, last: bool = False) -> TaskEvent:
    """An artifact's chunk as it is stored; one that neither appends nor is followed is whole."""
    return TaskEvent(n, None, stored.artifact_update('t', 'context of t', artifact(text), append=append, last=last))


def with_config(submission: Submission, name: str) -> Submission:
    """The message, with a configuration."""
    return replace(submission, push=config(name), push_limit=10)


async def finished(backend: Backend) -> None:
    """Complete a task without any delivery to the configuration."""
    await submit(backend, message(new='t'))
    await register(backend, 'c')
    await run(backend, 't')


async def canceled(backend: Backend, owner: str, *names: str) -> None:
    """Cancel a task of an owner without any delivery to the configurations."""
    task_id = f'task of {owner}'
    await submit(backend, message(new=task_id, owner=owner))
    for name in names:
        await configs_of(backend).create(task_id, owner, config(name), limit=len(names))
    await backend.queue.cancel(task_id, owner, at=AT)


async def fail(backend: Backend, delivery: Delivery, *, at: int = AT) -> None:
    """Give a delivery up."""
    await outbox_of(backend).failed(delivery, at=at, pause=None, error='HTTP 500')
