"""Tests of two owners with the same ids of contexts, messages and conversations: neither sees or changes the other."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import timedelta
from typing import Any, get_args

from pydantic_ai import Conversation

from ..ports import Backend, Claim, ExportedTask, Slot
from ..settings import Retention
from ..types import TaskQuery, TaskState
from .base import MakeBackend, PortSuite
from .values import AT, LEASE, claim_one, ending, erase, message, run, said, submit, text_of, turn

__all__ = ('OwnerSuite', 'lived')

SECOND = 1000
OWNERS = ('/ada', '/bob')
SLOT = Slot('holder', LEASE)
KEEP = Retention(tasks=timedelta(seconds=100), events=timedelta(seconds=10), contexts=timedelta(seconds=1000))


class _Life:
    """What one owner does, step by step, with names that the other owner has too, and what it sees of it."""

    def __init__(self, backend: Backend, owner: str) -> None:
        self._backend = backend
        self._owner = owner
        self._store = backend.conversations(owner)

    def task(self, name: str) -> str:
        """The id of a task: only ids of tasks are unique."""
        return f'{name} of {self._owner}'

    async def steps(self) -> AsyncGenerator[int]:
        """Do one step after the other. A number is the time of a sweep, which is for all owners."""
        for n, state in enumerate(('completed', 'completed', 'input-required', 'failed', 'canceled')):
            await self._run(f't{n}', state, at=AT + n)
            yield 0
        await self._submit('waits for its turn', context='d', at=AT + 5)
        yield 0
        running = await self._begin('runs', context='e', at=AT + 6)
        yield 0
        await self._branches()
        yield AT + 20 * SECOND
        await self._run('after the sweep', 'completed', at=AT + 150 * SECOND)
        yield AT + 200 * SECOND
        await self._backend.queue.finish(running, ending(running, at=AT + 210 * SECOND))
        await run(self._backend, self.task('waits for its turn'), at=AT + 210 * SECOND)
        yield 0
        await self._store.delete('f')
        yield 0
        await erase(self._backend, self._owner, 'c', at=AT + 220 * SECOND)
        yield AT + 230 * SECOND
        await erase(self._backend, self._owner, at=AT + 240 * SECOND)
        yield 0

    async def _submit(self, name: str, *, context: str, at: int, slot: Slot | None = None) -> Claim | None:
        submission = message(name, new=self.task(name), context=context, owner=self._owner, at=at, message_id=name)
        accepted = await submit(self._backend, submission, slot=slot)
        assert (accepted.header.id, accepted.replayed) == (self.task(name), False)
        again = await submit(self._backend, submission)
        assert (again.header.id, again.replayed) == (self.task(name), True)
        return accepted.claim

    async def _begin(self, name: str, *, context: str, at: int) -> Claim:
        """Run a task at once, if no other one is queued."""
        claimed = await self._submit(name, context=context, at=at, slot=SLOT)
        return claimed or await claim_one(self._backend, self.task(name), at=at)

    async def _run(self, name: str, state: Any, *, at: int) -> None:
        claimed = await self._begin(name, context='c', at=at)
        assert said(await self._backend.history(claimed)) == await self._texts('c')
        artifact = b'{"artifactId":"a","parts":[{"text":"the result"}]}'
        ended = ending(
            claimed, state, at=at, messages=turn(f'{name} {self._owner}', 'done'), artifacts=[('a', artifact)]
        )
        assert await self._backend.queue.finish(claimed, ended) is None

    async def _branches(self) -> None:
        made = Conversation(conversation_id='s', messages=[*turn(f'one {self._owner}', '1'), *turn('two', '2')])
        await self._store.save(made)
        fork = await self._store.fork('s', at=2, new_conversation_id='f')
        fork.messages += turn(f'forked {self._owner}', 'x')
        await self._store.save(fork)
        branch = await self._store.branch('s', at=2, expected_revision=made.revision)
        branch.messages += turn(f'again {self._owner}', '2b')
        await self._store.save(branch)

    async def _texts(self, name: str) -> list[str]:
        loaded = await self._store.load(name)
        return [] if loaded is None else said(loaded.messages)

    async def sees(self) -> dict[str, Any]:
        """All that the owner reads."""
        seen: dict[str, Any] = {}
        for state in (None, *get_args(TaskState)):
            for context in (None, 'c', 'd'):
                query = TaskQuery(owner=self._owner, state=state, context_id=context, page_size=1)
                names: list[str] = []
                total = 0
                before: tuple[int, str] | None = None
                while True:
                    page = await self._backend.reader.list(replace(query, before=before))
                    names += [task.header.id for task in page.tasks]
                    total, before = page.total, page.next
                    if before is None:
                        break
                seen[f'{state} in {context}'] = names, total
        for name in ('c', 's', 'f'):
            seen[f'conversation {name}'] = await self._texts(name)
            entries = await self._store.load_entries(name) or ()
            seen[f'entries of {name}'] = [said([(await self._store.read_entry(entry.id)).message]) for entry in entries]
        seen['conversations'] = sorted(record.conversation_id for record in await self._store.list_conversations())
        seen['export'] = [_exported(item) async for item in self._backend.housekeeping.export(self._owner)]
        seen['letters'] = [letter.task_id for letter in await self._backend.housekeeping.dead_letters(self._owner)]
        return seen


def _exported(item: Any) -> Any:
    if isinstance(item, ExportedTask):
        return item.task.header.id, [text_of(body) for body in item.task.history or ()]
    return item.record.conversation_id, said(item.messages), [said(branch) for branch in item.branches]


async def lived(*places: tuple[Backend, str]) -> AsyncGenerator[list[dict[str, Any]]]:
    """Let owners, each of a backend, do step by step in turn. Return what each sees, after each of its steps."""
    lives = [_Life(backend, owner) for backend, owner in places]
    steps = [life.steps() for life in lives]
    while True:
        seen: list[dict[str, Any]] = []
        at = 0
        for life, its_steps in zip(lives, steps, strict=True):
            try:
                at = await anext(its_steps)
            except StopAsyncIteration:
                return
            seen.append({} if at else await life.sees())
        for backend, _ in places:
            while at and await backend.housekeeping.sweep(KEEP, at=at):
                pass
        for n, life in enumerate(lives):
            later = await life.sees()
            assert seen[n] in ({}, later), 'the step of another owner has changed what this one sees'
            seen[n] = later
        yield seen


class OwnerSuite(PortSuite):
    """Tests of two owners with the same names."""

    async def test_an_owner_sees_the_same_beside_another_one_with_the_same_names(
        self, make_backend: MakeBackend
    ) -> None:
        alone: dict[str, list[Any]] = {}
        for owners in (*((owner,) for owner in OWNERS), OWNERS, OWNERS[::-1]):
            backend = make_backend()
            seen = [each async for each in lived(*((backend, owner) for owner in owners))]
            backend.close()
            for n, owner in enumerate(owners):
                its = [each[n] for each in seen]
                assert its == alone.setdefault(owner, its)
