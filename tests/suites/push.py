"""Tests of the configurations of webhooks, and the steps of all tests of webhooks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from pydantic_ai_a2a.errors import InvalidParamsError, TaskNotFoundError
from pydantic_ai_a2a.server.store.ports import (
    DEAD_LETTER,
    Backend,
    Delivery,
    Outbox,
    PushConfig,
    PushConfigs,
    Submission,
    Takes,
)
from pydantic_ai_a2a.settings import Retention
from pydantic_ai_a2a.types import TaskEvent
from pydantic_ai_a2a.wire.protocol import stored

from .base import PortSuite
from .values import LEASE, OWNER, START, claim_and_finish, message, submit, sweep

__all__ = (
    'PushConfigSuite',
    'artifact',
    'artifact_event',
    'cancel_task_with_webhooks',
    'complete_task_with_webhook',
    'config',
    'configs_of',
    'deliver_all',
    'event_summary',
    'give_up',
    'lease_deliveries',
    'outbox_of',
    'register',
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


async def lease_deliveries(
    backend: Backend, *, lease: int = LEASE, limit: int = 100, held: Mapping[str, int] | None = None
) -> list[Delivery]:
    leased = await outbox_of(backend).lease(lease=lease, limit=limit, held=held or {})
    return [*leased.deliveries]


async def deliver_all(backend: Backend) -> dict[str, list[str]]:
    """Deliver all due events, and return a short text of the deliveries of each configuration."""
    heard: dict[str, list[str]] = {}
    while deliveries := await lease_deliveries(backend):
        for delivery in deliveries:
            heard.setdefault(delivery.config.id, []).append(event_summary(delivery.event))
            await outbox_of(backend).done(delivery)
    return heard


def event_summary(event: TaskEvent) -> str:
    if event.state is not None:
        return f'{event.n} {event.state}'
    update = json.loads(event.payload)['artifactUpdate']
    return f'{event.n} {"".join(part["text"] for part in update["artifact"]["parts"])}'


def artifact(text: str) -> bytes:
    return json.dumps({'artifactId': 'a', 'parts': [{'text': text}]}).encode()


def artifact_event(n: int, text: str, *, append: bool = False, last: bool = False) -> TaskEvent:
    """An artifact's chunk as it is stored; one that neither appends nor is followed is whole."""
    return TaskEvent(n, None, stored.artifact_update('t', 'context of t', artifact(text), append=append, last=last))


def with_config(submission: Submission, name: str) -> Submission:
    """The message, with a configuration."""
    return replace(submission, push=config(name), push_limit=10)


async def complete_task_with_webhook(backend: Backend) -> None:
    """Complete a task without any delivery to the configuration."""
    await submit(backend, message(new='t'))
    await register(backend, 'c')
    await claim_and_finish(backend, 't')


async def cancel_task_with_webhooks(backend: Backend, owner: str, *names: str) -> None:
    """Cancel a task of an owner without any delivery to the configurations."""
    task_id = f'task of {owner}'
    await submit(backend, message(new=task_id, owner=owner))
    for name in names:
        await configs_of(backend).create(task_id, owner, config(name), limit=len(names))
    await backend.queue.cancel(task_id, owner, at=START)


async def give_up(backend: Backend, delivery: Delivery, *, at: int = START) -> None:
    """Give a delivery up."""
    await outbox_of(backend).failed(delivery, at=at, pause=None, error='HTTP 500')


class PushConfigSuite(PortSuite):
    """Tests of configurations."""

    async def test_push_config_is_read_as_written(self, backend: Backend) -> None:
        await submit(backend, message(new='t'))
        first, second = config('a', 'statuses', b'\x00\xff'), config('b', 'chunks')
        for webhook in (first, second):
            await configs_of(backend).create('t', OWNER, webhook, limit=2)
        assert list(await configs_of(backend).list('t', OWNER)) == [first, second]
        assert await configs_of(backend).get('t', OWNER, 'b') == second
        assert await configs_of(backend).get('t', OWNER, None) == first

    async def test_push_config_at_limit_can_be_replaced(self, backend: Backend) -> None:
        await submit(backend, message(new='t'))
        await register(backend, 'a')
        await configs_of(backend).create('t', OWNER, config('a', body=b'new'), limit=1)
        with pytest.raises(InvalidParamsError):
            await configs_of(backend).create('t', OWNER, config('b'), limit=1)
        assert list(await configs_of(backend).list('t', OWNER)) == [config('a', body=b'new')]

    async def test_deleting_push_config_is_idempotent(self, backend: Backend) -> None:
        await submit(backend, message(new='t'))
        await register(backend, 'a', 'b')
        for _ in range(2):
            await configs_of(backend).delete('t', OWNER, 'a')
        assert list(await configs_of(backend).list('t', OWNER)) == [config('b')]
        with pytest.raises(TaskNotFoundError):
            await configs_of(backend).get('t', OWNER, 'a')

    async def test_retried_dead_letter_keeps_push_configs(self, backend: Backend) -> None:
        await submit(backend, message(new='t'))
        await register(backend, 'a')
        await register(backend, 'b', takes='statuses')
        await claim_and_finish(backend, 't', 'failed', failure=DEAD_LETTER)
        await deliver_all(backend)
        await backend.housekeeping.retry('t', new_id='u', at=START)
        assert list(await configs_of(backend).list('u', OWNER)) == [config('a'), config('b', 'statuses')]
        await claim_and_finish(backend, 'u')
        assert await deliver_all(backend) == {'a': ['1 working', '2 completed'], 'b': ['1 working', '2 completed']}

    @pytest.mark.parametrize(('task_id', 'owner'), [('t', '/bob'), ('no such task', OWNER)])
    async def test_push_configs_of_another_owner_are_not_found(
        self, backend: Backend, task_id: str, owner: str
    ) -> None:
        await submit(backend, message(new='t'))
        await register(backend, 'c')
        configs = configs_of(backend)
        with pytest.raises(TaskNotFoundError):
            await configs.create(task_id, owner, config('d'), limit=10)
        with pytest.raises(TaskNotFoundError):
            await configs.get(task_id, owner, 'c')
        with pytest.raises(TaskNotFoundError):
            await configs.list(task_id, owner)
        with pytest.raises(TaskNotFoundError):
            await configs.delete(task_id, owner, 'c')
        assert list(await configs.list('t', OWNER)) == [config()]

    @pytest.mark.parametrize('way', ['erase_task', 'erase', 'sweep'])
    async def test_push_configs_and_deliveries_are_deleted_with_task(self, backend: Backend, way: str) -> None:
        await submit(backend, message(new='t'))
        await register(backend, 'c')
        await claim_and_finish(backend, 't')
        housekeeping = backend.housekeeping
        if way == 'erase_task':
            await housekeeping.erase_task('t', OWNER, at=START)
        elif way == 'erase':
            await housekeeping.erase(OWNER, at=START)
        else:
            await sweep(backend, Retention(tasks=timedelta(seconds=1), waiting=timedelta(seconds=1)), at=START + 1001)
        assert await lease_deliveries(backend) == []
        await submit(backend, message('again', new='t'))
        assert list(await configs_of(backend).list('t', OWNER)) == []
