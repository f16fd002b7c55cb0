"""Tests of exporting and erasing an owner or a context."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pydantic_ai.conversation_store import ConversationEntry, ConversationRecord
from pydantic_ai.usage import RunUsage

from pydantic_ai_a2a.server.store.ports import Backend, Erased, ExportedConversation, ExportedTask
from pydantic_ai_a2a.settings import Retention

from .base import PortSuite
from .values import (
    OWNER,
    START,
    artifact_chunk,
    claim_and_finish,
    claim_task,
    conversation_texts,
    erase,
    finish_of,
    message,
    model_texts,
    model_turn,
    record_of,
    submit,
    task_ids,
    text_of_body,
)

__all__ = ('ExportSuite',)


async def complete_task(
    backend: Backend, task_id: str, *, context: str | None = None, owner: str = OWNER, **rest: Any
) -> None:
    await submit(backend, message(f'do {task_id}', new=task_id, context=context, owner=owner))
    await claim_and_finish(backend, task_id, messages=model_turn(task_id, 'done'), **rest)


async def exported_names(backend: Backend, owner: str = OWNER, context: str | None = None) -> list[str]:
    """The names of all that is exported."""
    items = [item async for item in backend.housekeeping.export(owner, context)]
    return [_name(item) for item in items]


def _name(item: ExportedTask | ExportedConversation) -> str:
    return item.task.header.id if isinstance(item, ExportedTask) else f'{item.record.conversation_id}:'


class ExportSuite(PortSuite):
    """All that an owner has, handed out and erased."""

    most_rows = 10_000
    """The most tasks and events, and the most model messages, that one batch of an erasure may delete."""

    async def test_export_lists_all_tasks_then_conversations_of_owner(self, backend: Backend) -> None:
        await complete_task(backend, 'a', context='c')
        await submit(backend, message(new='b', context='d'))
        await complete_task(backend, 'x', context='c', owner='/bob')
        assert await exported_names(backend) == ['a', 'b', 'c:']
        assert await exported_names(backend, '/bob') == ['x', 'c:']
        assert await exported_names(backend, '/eve') == []

    async def test_export_of_context_is_limited_to_context(self, backend: Backend) -> None:
        for task_id, context in (('a', 'c'), ('b', 'd'), ('e', 'c')):
            await complete_task(backend, task_id, context=context)
        assert await exported_names(backend, context='c') == ['a', 'e', 'c:']
        assert await exported_names(backend, context='nothing') == []

    async def test_exported_task_has_messages_and_artifacts(self, backend: Backend) -> None:
        await submit(backend, message('do it', new='t'))
        answer = b'{"messageId":"answer","parts":[{"text":"done"}]}'
        artifact = b'{"artifactId":"a","parts":[{"text":"the result"}]}'
        await claim_and_finish(backend, 't', history=[('answer', answer)], artifacts=[('a', artifact)])
        exported, _ = [item async for item in backend.housekeeping.export(OWNER)]
        assert isinstance(exported, ExportedTask)
        assert [text_of_body(body) for body in exported.task.history or ()] == ['do it', 'done']
        assert [text_of_body(body) for body in exported.task.artifacts or ()] == ['the result']
        assert exported.requests == []

    async def test_exported_task_has_requests_of_its_messages(self, backend: Backend) -> None:
        await submit(backend, replace(message('one', new='t'), request=b'{"n":1}'))
        for n, text in ((2, 'two'), (3, 'three')):
            await submit(backend, replace(message(text, to='t'), request=b'{"n":%d}' % n))
        await submit(backend, message('four', to='t'))
        exported, *_ = [item async for item in backend.housekeeping.export(OWNER)]
        assert isinstance(exported, ExportedTask)
        assert exported.requests == [b'{"n":1}', b'{"n":2}', b'{"n":3}']

    async def test_exported_conversation_has_messages_usage_and_branches(self, backend: Backend) -> None:
        await complete_task(backend, 't', context='c', usage=RunUsage(requests=3))
        store = backend.conversations(OWNER)
        record = await record_of(store, 'c')
        await store.branch('c', at=1, expected_revision=record.revision)
        await complete_task(backend, 'u', context='c', usage=RunUsage(requests=4))
        *_, conversation = [item async for item in backend.housekeeping.export(OWNER, 'c')]
        assert isinstance(conversation, ExportedConversation)
        assert conversation.record.usage == RunUsage(requests=7)
        assert model_texts(conversation.messages) == ['t', 'u', 'done']
        assert [model_texts(branch) for branch in conversation.branches] == [['t', 'done']]

    async def test_task_ending_during_export_is_exported_once(self, backend: Backend) -> None:
        await complete_task(backend, 'b')
        await complete_task(backend, 'd', state='input-required')
        await backend.housekeeping.sweep(Retention(), at=START)
        for name in 'ac':
            await submit(backend, message(new=name))
        names: list[str] = []
        async for item in backend.housekeeping.export(OWNER):
            if isinstance(item, ExportedTask):
                names.append(item.task.header.id)
                if len(names) == 1:
                    await submit(backend, message('this', to='d'))
                    for name in 'acd':
                        await claim_and_finish(backend, name)
                    await backend.housekeeping.sweep(Retention(), at=START)
        assert sorted(names) == ['a', 'b', 'c', 'd']

    async def test_export_leaves_out_data_erased_meanwhile(self, backend: Backend) -> None:
        for name in 'abc':
            await complete_task(backend, name, context=name)
        lines: list[str] = []
        async for item in backend.housekeeping.export(OWNER):
            match item:
                case ExportedTask():
                    lines.append(item.task.header.id)
                    await backend.housekeeping.erase_task('b', OWNER, at=START)
                case _:
                    lines.append(f'{item.record.conversation_id}:')
                    await erase(backend, context='b')
        assert lines == ['a', 'c', 'a:', 'c:']

    async def test_erasing_owner_deletes_exactly_its_own_data(self, backend: Backend) -> None:
        await complete_task(backend, 'a', context='c')
        await complete_task(backend, 'b', context='d', artifacts=[('x', b'{"artifactId":"x","parts":[]}')])
        await complete_task(backend, 'x', context='c', owner='/bob')
        await backend.conversations(OWNER).fork('c', new_conversation_id='fork')
        assert await erase(backend) == Erased(tasks=2, items=3, events=4, conversations=3, entries=4)
        assert await exported_names(backend) == []
        assert await exported_names(backend, '/bob') == ['x', 'c:']
        assert await conversation_texts(backend, 'c', '/bob') == ['x', 'done']
        assert not await erase(backend)

    async def test_erasing_context_keeps_messages_shared_with_fork(self, backend: Backend) -> None:
        await complete_task(backend, 'a', context='c')
        await complete_task(backend, 'b', context='d')
        await backend.conversations(OWNER).fork('c', new_conversation_id='fork')
        assert await erase(backend, context='c') == Erased(tasks=1, items=1, events=2, conversations=1, entries=0)
        assert await exported_names(backend) == ['b', 'd:', 'fork:']
        assert await conversation_texts(backend, 'fork') == ['a', 'done']

    async def test_erasing_owner_deletes_orphaned_model_messages(self, backend: Backend) -> None:
        record = ConversationRecord(conversation_id='c', head_id=None)
        entries = [ConversationEntry(id=f'e{n}', parent_id=None, message=model_turn('hi', '.')[0]) for n in range(501)]
        others = [replace(each, id=f'a{each.id}') for each in entries]  # more than a batch, and first in each index
        for owner, its in (('/aa', others), (OWNER, entries), ('/bob', entries)):
            await backend.conversations(owner).write_record(record, new_entries=its, expected_revision=None)
        assert await erase(backend, context='c') == Erased(conversations=1)
        assert await erase(backend) == Erased(entries=501)
        with pytest.raises(LookupError):
            await backend.conversations(OWNER).read_entry('e0')
        assert await backend.conversations('/bob').read_entry('e0') == entries[0]

    async def test_erasing_owner_with_many_rows_takes_several_batches(self, backend: Backend) -> None:
        await submit(backend, message(new='long', context='c'))
        claimed = await claim_task(backend, 'long')
        await backend.queue.emit(claimed, [artifact_chunk(n, '.') for n in range(2, 1201)])
        await backend.queue.finish(claimed, finish_of(claimed, after=1200, messages=model_turn('long', '.') * 300))
        for n in range(120):
            await complete_task(backend, f't{n}', context=f'c{n}')
        batches: list[Erased] = []
        while batch := await backend.housekeeping.erase(OWNER, at=START):
            batches.append(batch)
        assert len(batches) > 1
        assert max(max(batch.tasks + batch.events, batch.entries) for batch in batches) <= self.most_rows
        assert sum(batches, Erased()) == Erased(tasks=121, items=122, events=1441, conversations=121, entries=840)

    async def test_erasing_tasks_with_many_messages_takes_several_batches(self, backend: Backend) -> None:
        for name in 'abc':
            said_much = [(f'{n}', b'{"parts":[]}') for n in range(300)]
            await complete_task(backend, name, context='c', history=said_much)
        steps: list[int] = []
        while batch := await backend.housekeeping.erase(OWNER, 'c', at=START):
            steps.append(batch.tasks)
        assert steps == [2, 1, 0]

    async def test_compacting_store_keeps_tasks_and_conversations(self, backend: Backend) -> None:
        await complete_task(backend, 't', context='c')
        await complete_task(backend, 'x', owner='/bob')
        await erase(backend, '/bob')
        await backend.compact()
        assert await exported_names(backend) == ['t', 'c:']
        assert await conversation_texts(backend, 'c') == ['t', 'done']

    async def test_erased_task_and_context_ids_can_be_reused(self, backend: Backend) -> None:
        await complete_task(backend, 't', context='c')
        await erase(backend)
        assert not (await submit(backend, message('do t', new='t', context='c'))).replayed
        claimed = await claim_task(backend, 't')
        assert not await backend.history(claimed)
        assert await task_ids(backend) == ['t']
