"""Conversations behave as Pydantic AI's own store does, and runs append to them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic_ai import Conversation
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelMessage
from pydantic_ai.usage import RunUsage

from pydantic_ai_a2a.server.store.ports import Backend

from .base import PortSuite
from .values import (
    OWNER,
    claim_and_finish,
    claim_task,
    conversation_texts,
    entries_of,
    finish_of,
    message,
    model_texts,
    model_turn,
    record_of,
    submit,
)

__all__ = ('ContextSuite', 'ConversationStoreSuite')


async def saved(store: ConversationStore, name: str, *messages: ModelMessage, scope: str | None = None) -> Conversation:
    made = Conversation(conversation_id=name, messages=[*messages])
    await store.save(made, scope=scope)
    return made


async def texts(store: ConversationStore, name: str) -> list[str] | None:
    loaded = await store.load(name)
    return None if loaded is None else model_texts(loaded.messages)


class ConversationStoreSuite(PortSuite):
    """Tests of any Pydantic AI `ConversationStore`. To test a store without a backend, override the fixture `store`."""

    @pytest.fixture
    def store(self, backend: Backend) -> ConversationStore:
        """An empty store."""
        return backend.conversations(OWNER)

    async def test_saved_conversation_is_loaded_unchanged(self, store: ConversationStore) -> None:
        made = Conversation(
            conversation_id='c', messages=model_turn('hi', 'hello'), usage=RunUsage(requests=1, output_tokens=2)
        )
        await store.save(made)
        loaded = await store.load('c')
        assert loaded is not None
        assert loaded.messages == made.messages
        assert (loaded.usage, loaded.revision) == (made.usage, made.revision)
        assert await store.load('nowhere') is None

    async def test_saving_conversation_again_appends_new_messages(self, store: ConversationStore) -> None:
        made = await saved(store, 'c', *model_turn('one', '1'))
        made.messages += model_turn('two', '2')
        assert model_texts([entry.message for entry in await store.save(made)]) == ['two', '2']
        entries = await entries_of(store, 'c')
        assert [entry.parent_id for entry in entries] == [None, *(entry.id for entry in entries[:-1])]
        assert model_texts([entry.message for entry in entries]) == ['one', '1', 'two', '2']
        assert await store.read_entry(entries[2].id) == entries[2]

    async def test_conversation_load_limit_returns_newest_messages(self, store: ConversationStore) -> None:
        await saved(store, 'c', *model_turn('one', '1'), *model_turn('two', '2'))
        loaded = await store.load('c', limit=3)
        assert loaded is not None
        assert model_texts(loaded.messages) == ['1', 'two', '2']
        empty = await store.load('c', limit=0)
        assert empty is not None
        assert empty.messages == []

    async def test_saving_stale_conversation_conflicts(self, store: ConversationStore) -> None:
        await saved(store, 'c', *model_turn('one', '1'))
        first, second = await store.load('c'), await store.load('c')
        assert first is not None
        assert second is not None
        first.messages += model_turn('two', '2')
        await store.save(first)
        second.messages += model_turn('other', 'x')
        with pytest.raises(ConversationConflict):
            await store.save(second)
        with pytest.raises(ConversationConflict):
            await saved(store, 'c', *model_turn('new', 'n'))
        assert await texts(store, 'c') == ['one', '1', 'two', '2']

    async def test_refused_conversation_write_stores_no_entries(self, store: ConversationStore) -> None:
        await saved(store, 'c', *model_turn('one', '1'))
        [entry] = [ConversationEntry(parent_id=None, message=model_turn('lost', 'lost')[0])]
        record = ConversationRecord(conversation_id='c', head_id=entry.id)
        with pytest.raises(ConversationConflict):
            await store.write_record(record, new_entries=[entry], expected_revision='not this one')
        with pytest.raises(LookupError):
            await store.read_entry(entry.id)

    async def test_conversation_head_must_be_existing_entry(self, store: ConversationStore) -> None:
        record = ConversationRecord(conversation_id='c', head_id='nowhere')
        with pytest.raises(ConversationConflict):
            await store.write_record(record, expected_revision=None)
        assert await store.read_record('c') is None

    async def test_fork_and_original_conversation_grow_independently(self, store: ConversationStore) -> None:
        await saved(store, 'c', *model_turn('one', '1'), *model_turn('two', '2'))
        fork = await store.fork('c', at=2, new_conversation_id='f')
        fork.messages += model_turn('other', 'x')
        await store.save(fork)
        assert await texts(store, 'f') == ['one', '1', 'other', 'x']
        assert await texts(store, 'c') == ['one', '1', 'two', '2']
        record = await record_of(store, 'f')
        assert record.forked_from == 'c'
        with pytest.raises(ConversationConflict):
            await store.fork('c', new_conversation_id='f')
        with pytest.raises(UserError):
            await store.fork('nowhere')

    async def test_conversation_can_return_to_history_before_branch(self, store: ConversationStore) -> None:
        made = await saved(store, 'c', *model_turn('one', '1'), *model_turn('two', '2'))
        entries = await entries_of(store, 'c')
        branch = await store.branch('c', at=2, expected_revision=made.revision)
        branch.messages += model_turn('again', '2b')
        await store.save(branch)
        assert await texts(store, 'c') == ['one', '1', 'again', '2b']
        await store.branch('c', from_entry=entries[-1].id, expected_revision=branch.revision)
        assert await texts(store, 'c') == ['one', '1', 'two', '2']

    async def test_deleting_conversation_keeps_entries_shared_with_fork(self, store: ConversationStore) -> None:
        await saved(store, 'c', *model_turn('one', '1'), *model_turn('two', '2'))
        entries = await entries_of(store, 'c')
        await store.fork('c', at=2, new_conversation_id='f')
        await store.delete('c')
        assert await texts(store, 'c') is None
        assert await texts(store, 'f') == ['one', '1']
        with pytest.raises(LookupError):
            await store.read_history(entries[2].id)
        await store.delete('f')
        for entry in entries:
            with pytest.raises(LookupError):
                await store.read_entry(entry.id)

    async def test_deleting_conversation_deletes_its_branches(self, store: ConversationStore) -> None:
        made = await saved(store, 'c', *model_turn('one', '1'), *model_turn('two', '2'))
        entries = await entries_of(store, 'c')
        branch = await store.branch('c', at=2, expected_revision=made.revision)
        branch.messages += model_turn('again', '2b')
        await store.save(branch)
        fork = await store.fork('c', from_entry=entries[2].id)
        await store.delete('c')
        with pytest.raises(LookupError):
            await store.read_entry(entries[3].id)
        assert await texts(store, fork.conversation_id) == ['one', '1', 'two']

    async def test_deleting_conversation_at_stale_revision_conflicts(self, store: ConversationStore) -> None:
        made = await saved(store, 'c', *model_turn('one', '1'))
        for name, revision in (('c', 'not this one'), ('nowhere', made.revision)):
            with pytest.raises(ConversationConflict):
                await store.delete_record(name, expected_revision=str(revision))
        await store.delete('nowhere')
        assert await texts(store, 'c') == ['one', '1']

    async def test_conversations_are_listed_newest_first(self, store: ConversationStore) -> None:
        for name, scope, second in (('a', 'x', 3), ('b', 'y', 1), ('c', 'x', 2)):
            record = ConversationRecord(
                conversation_id=name,
                head_id=None,
                scope=scope,
                updated_at=datetime(2030, 1, 1, 0, 0, second, tzinfo=UTC),
            )
            await store.write_record(record, expected_revision=None)

        async def names(**filters: Any) -> list[str]:
            return [record.conversation_id for record in await store.list_conversations(**filters)]

        assert await names() == ['a', 'c', 'b']
        assert await names(limit=2) == ['a', 'c']
        assert await names(scope='x') == ['a', 'c']
        assert await names(scope='x', limit=1) == ['a']
        assert await names(scope='z') == []

    async def test_empty_conversation_has_no_head(self, store: ConversationStore) -> None:
        await saved(store, 'c')
        record = await record_of(store, 'c')
        assert record.head_id is None
        assert await store.read_history(None) == []
        assert await texts(store, 'c') == []


class ContextSuite(PortSuite):
    """The conversations of a backend: an owner's, and what runs add to them."""

    async def test_conversations_of_another_owner_are_invisible(self, backend: Backend) -> None:
        ada, bob = backend.conversations('/ada'), backend.conversations('/bob')
        await saved(ada, 'c', *model_turn('ada', '1'))
        entries = await entries_of(ada, 'c')
        assert await bob.load('c') is None
        assert await bob.list_conversations() == []
        with pytest.raises(LookupError):
            await bob.read_history(entries[-1].id)
        with pytest.raises(ConversationConflict):
            await bob.write_record(
                ConversationRecord(conversation_id='x', head_id=entries[-1].id), expected_revision=None
            )
        await saved(bob, 'c', *model_turn('bob', '2'))
        await bob.delete('c')
        assert await texts(ada, 'c') == ['ada', '1']

    async def test_run_appends_to_conversation_saved_by_user(self, backend: Backend) -> None:
        store = backend.conversations(OWNER)
        await saved(store, 'c', *model_turn('before', '0'))
        await submit(backend, message('hi', new='t', context='c'))
        await claim_and_finish(backend, 't', messages=model_turn('hi', '1'), usage=RunUsage(requests=1))
        assert await conversation_texts(backend, 'c') == ['before', '0', 'hi', '1']
        stale = Conversation(conversation_id='c', messages=model_turn('over it', 'x'))
        with pytest.raises(ConversationConflict):
            await store.save(stale)

    async def test_run_restarts_conversation_deleted_meanwhile(self, backend: Backend) -> None:
        await submit(backend, message('one', new='a', context='c'))
        await claim_and_finish(backend, 'a', messages=model_turn('one', '1'))
        await submit(backend, message('two', new='b', context='c'))
        claimed = await claim_task(backend, 'b')
        await backend.conversations(OWNER).delete('c')
        await backend.queue.finish(claimed, finish_of(claimed, messages=model_turn('two', '2')))
        assert await conversation_texts(backend, 'c') == ['two', '2']

    async def test_summary_turns_old_history_into_branch(self, backend: Backend) -> None:
        store = backend.conversations(OWNER)
        for n in range(3):
            await submit(backend, message(f'{n}', new=f't{n}', context='c'))
            await claim_and_finish(backend, f't{n}', messages=model_turn(f'{n}', 'done'))
        fork = await store.fork('c', at=2, new_conversation_id='f')
        await submit(backend, message('3', new='t', context='c'))
        claimed = await claim_task(backend, 't')
        assert model_texts(await backend.history(claimed)) == ['0', 'done', '1', 'done', '2', 'done']
        rewritten = model_turn('summary', '3 done')
        await backend.queue.finish(claimed, finish_of(claimed, messages=model_turn('3', '3 done'), rewritten=rewritten))
        assert await conversation_texts(backend, 'c') == ['summary', '3 done']
        record = await record_of(store, 'c')
        [branch] = record.branches
        assert model_texts([entry.message for entry in await store.read_history(branch)]) == [
            '0',
            'done',
            '1',
            'done',
            '2',
            'done',
        ]
        await submit(backend, message('4', new='u', context='c'))
        claimed = await claim_task(backend, 'u')
        assert model_texts(await backend.history(claimed)) == ['summary', '3 done']
        await store.delete('c')
        assert await texts(store, fork.conversation_id) == ['0', 'done']
        for tip in (branch, record.head_id):
            with pytest.raises(LookupError):
                await store.read_history(tip)

    async def test_summary_is_discarded_if_conversation_grew_during_run(self, backend: Backend) -> None:
        store = backend.conversations(OWNER)
        await submit(backend, message('0', new='a', context='c'))
        await claim_and_finish(backend, 'a', messages=model_turn('0', 'done'))
        await submit(backend, message('1', new='b', context='c'))
        claimed = await claim_task(backend, 'b')
        loaded = await store.load('c')
        assert loaded is not None
        loaded.messages += model_turn('of a user', 'noted')
        await store.save(loaded)
        await backend.queue.finish(
            claimed, finish_of(claimed, messages=model_turn('1', 'done'), rewritten=model_turn('summary', 'done'))
        )
        assert await conversation_texts(backend, 'c') == ['0', 'done', 'of a user', 'noted', '1', 'done']

    async def test_summary_in_first_run_leaves_no_branch(self, backend: Backend) -> None:
        await submit(backend, message('0', new='a', context='c'))
        await claim_and_finish(backend, 'a', messages=model_turn('0', 'done'), rewritten=model_turn('summary', 'done'))
        assert await conversation_texts(backend, 'c') == ['summary', 'done']
        record = await record_of(backend.conversations(OWNER), 'c')
        assert record.branches == []
