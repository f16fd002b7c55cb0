"""Tests of two owners with the same ids of contexts, messages and conversations: neither sees or changes the other."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, get_args

from pydantic_ai.conversation_store import ConversationEntry, ConversationRecord
from pydantic_ai.messages import ModelRequest
from pydantic_ai.usage import RunUsage

from pydantic_ai_a2a.server.store.ports import Backend, Checkpoint, Claim, Erased, ExportedTask, Slot, Submission
from pydantic_ai_a2a.settings import Retention
from pydantic_ai_a2a.types import TaskQuery, TaskState

from .base import MakeBackend, PortSuite
from .credentials import with_sealed
from .values import (
    LEASE,
    START,
    claim_and_finish,
    claim_task,
    erase,
    finish_of,
    message,
    model_texts,
    model_turn,
    submit,
    sweep,
    text_of_body,
)

__all__ = ('OwnerSuite', 'run_scenarios')

SECOND = 1000
MANY = 60
"""Conversations that are erased in more than one batch."""
LONG = 550
"""Model messages of a conversation that is erased in more than one batch."""
OWNERS = ('/ada', '/bob')
SLOT = Slot('holder', LEASE)
KEEP = Retention(tasks=timedelta(seconds=100), events=timedelta(seconds=10), contexts=timedelta(seconds=150))


class _Life:
    """What one owner does, step by step, with names that the other owner has too, and what it sees of it."""

    def __init__(self, backend: Backend, owner: str) -> None:
        self._backend = backend
        self._owner = owner
        self._store = backend.conversations(owner)
        self._erased: list[Erased] = []

    def task(self, name: str) -> str:
        """The id of a task: only ids of tasks are unique."""
        return f'{name} of {self._owner}'

    async def steps(self) -> AsyncGenerator[int]:
        """Do one step after the other. A number is the time of a sweep, which is for all owners."""
        for n, state in enumerate(('completed', 'completed', 'input-required', 'failed', 'canceled')):
            await self._run(f't{n}', state, at=START + n)
            yield 0
        # Only the second owner still has a task in `d` when the first one's conversation there is due.
        if self._owner == OWNERS[0]:
            await self._run('ends', 'completed', at=START + 5, context='d')
        waiting = self._message('waits for its turn', context='w' if self._owner == OWNERS[0] else 'd', at=START + 5)
        await self._store_message(with_sealed(replace(waiting, task_limit=1), until=START + 10 * SECOND))
        yield 0
        running = await self._begin('runs', context='e', at=START + 6)
        if self._backend.durable:
            await self._backend.queue.emit(
                running, [], checkpoint=Checkpoint(run='r', messages=model_turn('runs', '1'), usage=RunUsage(), first=0)
            )
            yield 0
            await self._backend.queue.release(running)
            running = await claim_task(self._backend, self.task('runs'), at=START + 7)
            assert running.checkpoint is not None
            assert model_texts(running.checkpoint.messages) == ['runs', '1']
        yield 0
        async for at in self._branches():
            yield at
        for n in range(MANY):
            await self._write(f'empty {n}', [])
        record = ConversationRecord(conversation_id='empty', head_id=None)
        left = ConversationEntry(id='left', parent_id=None, message=ModelRequest.user_text_prompt(self._owner))
        await self._store.write_record(record, new_entries=[left], expected_revision=None)
        yield START + 20 * SECOND
        await self._run('after the sweep', 'completed', at=START + 150 * SECOND)
        yield START + 200 * SECOND
        await self._backend.queue.finish(running, finish_of(running, at=START + 210 * SECOND))
        await claim_and_finish(self._backend, self.task('waits for its turn'), at=START + 210 * SECOND)
        yield 0
        self._erased.append(await erase(self._backend, self._owner, 'c', at=START + 220 * SECOND))
        yield START + 230 * SECOND
        await self._store.delete('s')
        yield 0
        self._erased.append(await erase(self._backend, self._owner, at=START + 240 * SECOND))
        yield 0

    def _message(self, name: str, *, context: str, at: int) -> Submission:
        return message(name, new=self.task(name), context=context, owner=self._owner, at=at, message_id=name)

    async def _store_message(self, submission: Submission, slot: Slot | None = None) -> Claim | None:
        accepted = await submit(self._backend, submission, slot=slot)
        assert (accepted.header.id, accepted.replayed) == (submission.task_id, False)
        again = await submit(self._backend, submission)
        assert (again.header.id, again.replayed) == (submission.task_id, True)
        return accepted.claim

    async def _begin(self, name: str, *, context: str, at: int) -> Claim:
        """Run a task at once, if no other one is queued."""
        claimed = await self._store_message(self._message(name, context=context, at=at), SLOT)
        return claimed or await claim_task(self._backend, self.task(name), at=at)

    async def _run(self, name: str, state: Any, *, at: int, context: str = 'c') -> None:
        claimed = await self._begin(name, context=context, at=at)
        assert model_texts(await self._backend.history(claimed)) == await self._texts(context)
        artifact = b'{"artifactId":"a","parts":[{"text":"the result"}]}'
        ended = finish_of(
            claimed, state, at=at, messages=model_turn(f'{name} {self._owner}', 'done'), artifacts=[('a', artifact)]
        )
        assert await self._backend.queue.finish(claimed, ended) is None

    async def _branches(self) -> AsyncGenerator[int]:
        """Store a conversation that leaves a branch, and others that share its beginning.

        Other owners have entries with the same ids, some in another order: what one still needs, another one does not.
        """
        one, two, three, four = 'abcd' if self._owner == OWNERS[0] else 'cdab'
        await self._write('s', [one, two, three, four])
        await self._write('same', [one, two], shared=2)
        await self._write('more', [one, two, 'm'], shared=2)
        yield 0
        await self._store.delete('same')
        yield 0
        await self._store.delete('more')
        yield 0
        await self._write('f', [one, two, 'x', 'y'], shared=2, forked_from='s', forked_at=two)
        await self._write('s', [one, two, 'v', 'w'], shared=2, branches=[four], revision=f's {four}')
        yield 0
        await self._store.delete('f')
        yield 0
        await self._write('long', [f'e{n}' for n in range(LONG)])
        yield 0
        self._erased.append(await self._backend.housekeeping.erase(self._owner, 'long', at=START))
        yield 0
        self._erased.append(await erase(self._backend, self._owner, 'long', at=START))
        yield 0

    async def _write(
        self, name: str, ids: Sequence[str], *, shared: int = 0, revision: str | None = None, **fields: Any
    ) -> None:
        """Store a conversation, whose first entries another one has."""
        new = [
            ConversationEntry(
                id=entry, parent_id=parent, message=ModelRequest.user_text_prompt(f'{entry} {self._owner}')
            )
            for parent, entry in zip([None, *ids], ids, strict=False)
        ]
        head = ids[-1] if ids else None
        record = ConversationRecord(conversation_id=name, head_id=head, revision=f'{name} {head}', **fields)
        await self._store.write_record(record, new_entries=new[shared:], expected_revision=revision)

    async def _texts(self, name: str) -> list[str]:
        loaded = await self._store.load(name)
        return [] if loaded is None else model_texts(loaded.messages)

    async def sees(self) -> dict[str, Any]:
        """All that the owner reads."""
        seen: dict[str, Any] = {'erased': [*self._erased]}
        for state in (None, *get_args(TaskState)):
            for context in (None, 'c'):
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
        for name in ('c', 'd', 's', 'f', 'same', 'more'):
            seen[f'conversation {name}'] = await self._texts(name)
        for entry in (*'abcdmvwxy', 'left'):
            try:
                one, history = await self._store.read_entry(entry), await self._store.read_history(entry)
            except LookupError:
                continue
            seen[f'entry {entry}'] = model_texts([one.message]), model_texts([each.message for each in history])
        seen['conversations'] = sorted(record.conversation_id for record in await self._store.list_conversations())
        seen['export'] = [_exported(item) async for item in self._backend.housekeeping.export(self._owner)]
        if self._backend.credentials is not None:
            seen['credential'] = await self._backend.credentials.load(self.task('waits for its turn'), 'c') is None
        seen['letters'] = [letter.task_id for letter in await self._backend.housekeeping.dead_letters(self._owner)]
        return seen


def _exported(item: Any) -> Any:
    if isinstance(item, ExportedTask):
        return item.task.header.id, [text_of_body(body) for body in item.task.history or ()]
    return item.record.conversation_id, model_texts(item.messages), [model_texts(branch) for branch in item.branches]


async def run_scenarios(*places: tuple[Backend, str]) -> AsyncGenerator[list[dict[str, Any]]]:
    """Let owners, each of a backend, do step by step in turn. Return what each sees, after each of its steps."""
    lives = [_Life(backend, owner) for backend, owner in places]
    steps = [life.steps() for life in lives]
    seen = [await life.sees() for life in lives]
    while True:
        at: int | None = 0
        for n in range(len(lives)):
            at = await anext(steps[n], None)
            before, seen = [*seen], [await life.sees() for life in lives]
            before[n] = seen[n]
            assert seen == before, 'a step of one owner changes what another one sees'
        if at is None:
            return
        for swept in {backend for backend, _ in places} if at else ():
            await sweep(swept, KEEP, at=at)
            before, seen = seen, [await life.sees() for life in lives]
            for n, (backend, _) in enumerate(places):
                assert backend is swept or seen[n] == before[n], 'a sweep changes what another agent sees'
        yield seen


class OwnerSuite(PortSuite):
    """Tests of two owners with the same names."""

    async def test_owner_is_isolated_from_owner_with_same_ids(self, make_backend: MakeBackend) -> None:
        alone: dict[str, list[Any]] = {}
        for owners in (*((owner,) for owner in OWNERS), OWNERS, OWNERS[::-1]):
            backend = make_backend()
            seen = [each async for each in run_scenarios(*((backend, owner) for owner in owners))]
            backend.close()
            for n, owner in enumerate(owners):
                its = [each[n] for each in seen]
                assert its == alone.setdefault(owner, its)
