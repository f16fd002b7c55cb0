"""A run of chaos from its plan to the facts: processes, clients and faults at once, and then a look at what is left."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import httpx

from ..bounds import LIMIT
from .clients import Client, Conversation, Reader, state_of
from .facts import ENDED, Facts, FinalTask, ObservedState, ReaderConnection, SentMessage, is_logged
from .faults import Faults
from .ledger import opened
from .plan import Plan, Turn
from .processes import fleet
from .stores import Store

__all__ = ('Outcome', 'Settings', 'chaos')

_RECALL = 1000
"""Number of the turn that asks what is remembered: after all others."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How the processes work."""

    lease: float = 1.5
    recovery: float = 5.0
    """Leases in which a task is taken over whose process was lost, while the store is there."""
    attempts: int = 50
    pace: float = 0.2
    """Seconds that a tool takes."""
    running: int = 8
    """Tasks that a worker runs at once."""
    limit: float = 75.0
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
    troubles: Mapping[str, int]
    """Why clients had to ask again."""
    output: str
    """What the processes have said."""

    @property
    def recovered(self) -> list[float]:
        """Seconds from the loss of each task's process until another one went on with it."""
        return [each.begun - each.lost for each in self.facts.recoveries if each.begun is not None]

    @property
    def dropped(self) -> int:
        """How often a worker has tried to write to a task that it had lost."""
        return self.output.count('its late result is dropped')


async def chaos(plan: Plan, store: Store, settings: Settings, folder: Path) -> Outcome:
    """Do all of it."""
    with opened(folder / 'ledger') as ledger:
        async with (
            fleet(settings.env(store, ledger.path)) as processes,
            httpx.AsyncClient(limits=httpx.Limits(max_connections=None, max_keepalive_connections=20)) as http,
        ):
            sightings: list[ObservedState] = []
            by_context = {
                turns[0].context: Conversation(
                    Client(processes, http, Random(f'{plan.seed} {n}'), sightings), ledger, f'{plan.seed}'
                )
                for n, turns in enumerate(plan.conversations)
            }
            conversations = [*by_context.values()]
            faults = Faults(
                plan,
                processes,
                ledger,
                store,
                lease=settings.lease,
                send=lambda turn: by_context[turn.context].send(turn),
            )
            undone: list[str] = []
            try:
                await _work(plan, by_context, faults, settings.limit)
            except TimeoutError:
                undone.append(f'all of it, in {settings.limit} s')
            audit = conversations[0].client
            tasks = [await _facts_of(audit, task) for task in await _all_tasks(audit)]
        sent = [sent for each in conversations for sent in each.sent]
        return Outcome(
            Facts(
                [row for row in ledger.rows if row.step],
                sent,
                tasks,
                _by_task([reader for each in conversations for reader in each.readers]),
                sightings,
                [refusal for each in conversations for refusal in each.refusals],
                faults.away,
                faults.recoveries,
                settings.recovery * settings.lease,
                dead_letters=settings.attempts <= len(plan.faults),
                undone=[*undone, *_not_done(plan, sent, faults.done)],
            ),
            faults.done,
            sum((each.client.troubles for each in conversations), Counter[str]()),
            processes.output,
        )


async def _work(plan: Plan, by_context: Mapping[str, Conversation], faults: Faults, limit: float) -> None:
    """Send everything while things go wrong; then ask each conversation what it remembers."""
    async with asyncio.timeout(limit):
        async with asyncio.TaskGroup() as group:
            group.create_task(faults.run(group))
            for turns in plan.contexts:
                group.create_task(by_context[turns[0].context].send(*turns))
        async with asyncio.TaskGroup() as asking:
            for recall in _recalls(plan):
                asking.create_task(by_context[recall.context].send(recall))


def _recalls(plan: Plan) -> list[Turn]:
    return [Turn(turns[0].context, _RECALL, 0, 'blocking') for turns in plan.conversations]


def _not_done(plan: Plan, sent: Sequence[SentMessage], done: Mapping[str, int]) -> list[str]:
    """What was planned and has not come about."""
    names = {f'{each.context}/{each.turn}' for each in sent}
    turns = [turn for each in (*plan.conversations, _recalls(plan)) for turn in each]
    missing = Counter(fault.kind for fault in plan.faults) - Counter(done)
    return [f'message {turn.name}' for turn in turns if turn.name not in names] + [
        f'{count} times: {kind}' for kind, count in missing.items()
    ]


async def _all_tasks(client: Client) -> list[dict[str, Any]]:
    tasks: list[dict[str, Any]] = []
    token: dict[str, str] = {}
    async with asyncio.timeout(LIMIT):
        while True:
            page = await client.call('ListTasks', pageSize=100, includeArtifacts=True, **token)
            tasks += page['tasks']
            if not page['nextPageToken']:
                return tasks
            token = {'pageToken': page['nextPageToken']}


async def _facts_of(client: Client, task: dict[str, Any]) -> FinalTask:
    status, logged = task['status'].get('message', {}), is_logged(task['id'])
    return FinalTask(
        task['id'],
        task['contextId'],
        state_of(task),
        status.get('metadata', {}).get('failure'),
        [message['messageId'] for message in task['history'] if message['role'] == 'ROLE_USER'],
        [_text(message) for message in task['history'] if message['role'] == 'ROLE_AGENT'],
        [_text(artifact) for artifact in task.get('artifacts', ())],
        [event for reading in await _log(client, task) for event in reading.events] if logged else (),
        logged,
    )


async def _log(client: Client, task: dict[str, Any]) -> list[ReaderConnection]:
    """All events of a task. If the task has not ended, its stream does not end either: read it for a moment."""
    reader = Reader(task['id'])
    reader.readings.append(ReaderConnection(after=0))
    with suppress(TimeoutError):
        async with asyncio.timeout(LIMIT if state_of(task) in ENDED else 5.0):
            await reader.follow(client)
    return reader.readings


def _text(content: dict[str, Any]) -> str:
    return ''.join(part['text'] for part in content['parts'])


def _by_task(readers: Sequence[Reader]) -> dict[str, list[Sequence[ReaderConnection]]]:
    found: defaultdict[str, list[Sequence[ReaderConnection]]] = defaultdict(list)
    for reader in readers:
        if reader.task is not None:
            found[reader.task].append(reader.readings)
    return found
