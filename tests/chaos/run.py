"""A run of chaos from its plan to the facts: processes, clients and faults at once, and then a look at what is left."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import httpx

from .clients import Client, Reader, state_of
from .conversation import Conversation
from .facts import Facts, Reading, Sighting, TaskFacts
from .faults import Faults
from .ledger import opened
from .plan import Plan, Turn
from .processes import fleet

__all__ = ('Outcome', 'Settings', 'Store', 'chaos')

_AUDIT = 60.0
"""Seconds that it may take to read all that there is in the end."""


@dataclass(frozen=True)
class Store:
    """A database, and what can go wrong with it."""

    url: str
    faults: Mapping[str, Callable[[], Awaitable[None]]] = field(
        default_factory=dict[str, Callable[[], Awaitable[None]]]
    )


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How the processes work."""

    lease: float = 1.0
    attempts: int = 50
    pace: float = 0.2
    """Seconds that a tool takes."""
    running: int = 8
    """Tasks that a worker runs at once."""
    limit: float = 60.0
    """Seconds in which all tasks have to end; what has not is a violation."""

    def env(self, store: Store, ledger: Path) -> dict[str, str]:
        """As the app reads them."""
        return {
            'CHAOS_BACKEND': store.url,
            'CHAOS_LEDGER': str(ledger),
            'CHAOS_LEASE': str(self.lease),
            'CHAOS_ATTEMPTS': str(self.attempts),
            'CHAOS_PACE': str(self.pace),
            'CHAOS_RUNNING': str(self.running),
        }


@dataclass(frozen=True)
class Outcome:
    """What came of a run."""

    facts: Facts
    faults: Mapping[str, int]
    recovered: Sequence[float]
    troubles: Mapping[str, int]
    """Why clients had to ask again."""
    output: str
    """What the processes have said."""


async def chaos(plan: Plan, store: Store, settings: Settings, folder: Path) -> Outcome:
    """Do all of it."""
    with opened(folder / 'ledger') as ledger:
        async with (
            fleet(settings.env(store, ledger.path)) as processes,
            httpx.AsyncClient(limits=httpx.Limits(max_connections=None, max_keepalive_connections=20)) as http,
        ):
            faults = Faults(plan, processes, ledger, lease=settings.lease, store=store.faults)
            sightings: list[Sighting] = []
            conversations = [
                Conversation(Client(processes, http, Random(f'{plan.seed} {n}'), sightings), ledger, f'{plan.seed}')
                for n in range(len(plan.contexts))
            ]
            with suppress(TimeoutError):  # what has not ended by then is seen below
                await _work(plan, conversations, faults, settings.limit)
            audit = conversations[0].client
            tasks = [await _facts_of(audit, task) for task in await _all_tasks(audit)]
        return Outcome(
            Facts(
                ledger.rows,
                [sent for each in conversations for sent in each.sent],
                tasks,
                _by_task([reader for each in conversations for reader in each.readers]),
                sightings,
                [refusal for each in conversations for refusal in each.refusals],
            ),
            faults.done,
            faults.recovered,
            sum((each.client.troubles for each in conversations), Counter[str]()),
            processes.output,
        )


async def _work(plan: Plan, conversations: Sequence[Conversation], faults: Faults, limit: float) -> None:
    """Send everything while things go wrong; then ask each conversation what it remembers."""
    async with asyncio.timeout(limit):
        async with asyncio.TaskGroup() as group:
            going_wrong = group.create_task(faults.run(group))
            async with asyncio.TaskGroup() as sending:
                for conversation, turns in zip(conversations, plan.contexts, strict=True):
                    sending.create_task(conversation.send(*turns))
            going_wrong.cancel()
        async with asyncio.TaskGroup() as asking:
            for conversation, turns in zip(conversations, plan.contexts, strict=True):
                recall = Turn(turns[0].context, len(turns) + 1, 0, 'blocking')
                asking.create_task(conversation.send(recall))


async def _all_tasks(client: Client) -> list[dict[str, Any]]:
    tasks: list[dict[str, Any]] = []
    token: dict[str, str] = {}
    async with asyncio.timeout(_AUDIT):
        while True:
            page = await client.call('ListTasks', pageSize=100, includeArtifacts=True, **token)
            tasks += page['tasks']
            if not page['nextPageToken']:
                return tasks
            token = {'pageToken': page['nextPageToken']}


async def _facts_of(client: Client, task: dict[str, Any]) -> TaskFacts:
    status = task['status'].get('message', {})
    return TaskFacts(
        task['id'],
        task['contextId'],
        state_of(task),
        status.get('metadata', {}).get('failure'),
        [message['messageId'] for message in task['history'] if message['role'] == 'ROLE_USER'],
        [_text(message) for message in task['history'] if message['role'] == 'ROLE_AGENT'],
        [_text(artifact) for artifact in task.get('artifacts', ())],
        [event for reading in await _log(client, task) for event in reading.events],
    )


async def _log(client: Client, task: dict[str, Any]) -> list[Reading]:
    """All events of a task; of one that has not ended, those that are there within a moment."""
    reader = Reader(task['id'])
    reader.readings.append(Reading(after=0))
    with suppress(TimeoutError):
        async with asyncio.timeout(5.0):
            await reader.follow(client)
    return reader.readings


def _text(content: dict[str, Any]) -> str:
    return ''.join(part['text'] for part in content['parts'])


def _by_task(readers: Sequence[Reader]) -> dict[str, list[Sequence[Reading]]]:
    found: defaultdict[str, list[Sequence[Reading]]] = defaultdict(list)
    for reader in readers:
        if reader.task is not None:
            found[reader.task].append(reader.readings)
    return found
