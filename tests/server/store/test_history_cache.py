"""What a process keeps of the contexts it used last, and when it reads them anew."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from pydantic_ai import Conversation
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart

from pydantic_ai_a2a.server.store import history_cache
from pydantic_ai_a2a.server.store.history_cache import Histories, StoredEntry, memory_of
from pydantic_ai_a2a.server.store.model_messages import dump_message, load_message_rows
from pydantic_ai_a2a.server.store.ports import Backend
from pydantic_ai_a2a.server.store.sqlite.memory import MemoryBackend
from pydantic_ai_a2a.settings import Retention

from ...bounds import LIMIT

OWNER = '/'


class CachedConversation:
    """A conversation in a store, read through a cache."""

    def __init__(self, limit: int = 10_000, unused: float = LIMIT) -> None:
        self.backend = MemoryBackend('agent', reader_lag=1)
        self.store = self.backend.conversations(OWNER)
        self.histories = Histories(limit, unused)
        self._lost: str | None = None

    async def save(self, *texts: str, name: str = 'c') -> str:
        """Save a context of so many messages, as it grew; its newest entry's id."""
        known = await self.store.load(name) or Conversation(conversation_id=name)
        for text in texts[len(known.messages) :]:
            known.messages.append(ModelRequest.user_text_prompt(text))
        await self.store.save(known)
        record = await self.store.read_record(name)
        assert record is not None
        assert record.head_id is not None
        return record.head_id

    async def read(self, head: str, name: str = 'c') -> list[Any]:
        return contents_of(await self.histories.read(self, OWNER, name, head))

    async def read_since(self, head_id: str, known_id: str | None) -> list[StoredEntry]:
        entries = await self.store.read_since(head_id, known_id)
        if self._lost is not None and any(self._lost.encode() in entry.message for entry in entries):
            raise LookupError(head_id)
        return entries

    def lose(self, word: str = '') -> None:
        """Lose the messages with a word: later reads of such a message come from the cache, or fail."""
        self._lost = word


def contents_of(messages: Sequence[ModelMessage]) -> list[Any]:
    return [getattr(part, 'content', None) for message in messages for part in message.parts]


async def test_context_is_read_once() -> None:
    stored = CachedConversation()
    head = await stored.save('one', 'two')
    assert await stored.read(head) == ['one', 'two']
    stored.lose()
    assert await stored.read(head) == ['one', 'two']


async def test_grown_context_is_read_from_last_known_message() -> None:
    stored = CachedConversation()
    first = await stored.save('one', 'two')
    await stored.read(first)
    head = await stored.save('one', 'two', 'three', 'four')
    stored.lose('one')
    assert await stored.read(head) == ['one', 'two', 'three', 'four']


async def test_shortened_context_is_read_anew() -> None:
    stored = CachedConversation()
    first = await stored.save('one', 'two')
    await stored.read(await stored.save('one', 'two', 'three'))
    assert await stored.read(first) == ['one', 'two']
    await stored.store.delete('c')
    assert await stored.read(await stored.save('other')) == ['other']


async def test_context_is_returned_as_new_list_of_shared_messages() -> None:
    stored = CachedConversation()
    head = await stored.save('one')
    first, second = [await stored.histories.read(stored, OWNER, 'c', head) for _ in range(2)]
    assert first[0] is second[0]
    first.append(ModelResponse([TextPart('two')]))
    assert await stored.read(head) == ['one']


async def test_least_recently_used_context_is_dropped_at_size_limit() -> None:
    stored = CachedConversation(limit=2 * memory_of(dump_message(ModelRequest.user_text_prompt('a'))))
    heads = {name: await stored.save(name, name=name) for name in ('a', 'b', 'c')}
    for name in ('a', 'b', 'a', 'c'):
        assert await stored.read(heads[name], name) == [name]
    stored.lose()
    assert await stored.read(heads['a'], 'a') == ['a']
    assert await stored.read(heads['c'], 'c') == ['c']
    with pytest.raises(LookupError):
        await stored.read(heads['b'], 'b')


async def test_context_above_size_limit_is_not_cached() -> None:
    stored = CachedConversation(limit=1)
    head = await stored.save('one')
    assert await stored.read(head) == ['one']
    stored.lose()
    with pytest.raises(LookupError):
        await stored.read(head)


@pytest.mark.parametrize('context_id', ['c', None])
async def test_erased_context_is_not_cached(context_id: str | None) -> None:
    stored = CachedConversation()
    head, other = await stored.save('one'), await stored.save('two', name='d')
    await stored.read(head)
    await stored.read(other, 'd')
    stored.lose()
    stored.histories.forget('/somebody', context_id)
    assert await stored.read(head) == ['one']
    stored.histories.forget(OWNER, context_id)
    with pytest.raises(LookupError):
        await stored.read(head)
    if context_id is not None:
        assert await stored.read(other, 'd') == ['two']


async def test_unused_context_leaves_cache_after_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(history_cache, 'monotonic', lambda: now)
    monkeypatch.setattr(asyncio.get_running_loop(), 'time', lambda: now)
    stored = CachedConversation(unused=10)
    unused, used = await stored.save('one'), await stored.save('two', name='used')
    await stored.read(unused)
    now = 5
    await stored.read(used, 'used')
    now = 11
    await asyncio.sleep(0)  # The loop finds the timer of the cache,
    await asyncio.sleep(0)  # and calls it before it goes on here.
    stored.lose()
    assert await stored.read(used, 'used') == ['two']
    with pytest.raises(LookupError):
        await stored.read(unused)


def test_cache_timeout_works_after_event_loop_ended() -> None:
    stored = CachedConversation(unused=0.01)
    head = asyncio.run(stored.save('one'))
    asyncio.run(stored.read(head))

    async def later() -> None:
        other = await stored.save('two', name='d')
        await stored.read(other, 'd')
        await asyncio.sleep(0.05)
        stored.lose()
        with pytest.raises(LookupError):
            await stored.read(head)

    asyncio.run(later())


MESSAGES = {
    'short': ModelRequest.user_text_prompt('hi'),
    'long': ModelResponse([TextPart('Some words, and more. ' * 200)]),
    'quote': ModelResponse([TextPart('some words ' * 300 + '’')]),
    'emoji': ModelResponse([TextPart('some words ' * 300 + '😀')]),
    'chinese': ModelResponse([TextPart('漢字' * 300)]),
    'calls': ModelResponse([ToolCallPart('search', {'query': n}) for n in range(20)]),
    'objects': ModelRequest([ToolReturnPart('search', [{'id': n} for n in range(500)], tool_call_id='id')]),
    'lists': ModelRequest([ToolReturnPart('search', [[] for _ in range(500)], tool_call_id='id')]),
}


@pytest.mark.parametrize('kind', MESSAGES)
def test_message_memory_is_estimated_from_json(kind: str) -> None:
    body = dump_message(MESSAGES[kind])
    number = 200_000 // len(body)
    load_message_rows([body])  # makes the validator
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        messages = load_message_rows([body] * number)
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert len(messages) == number
    assert 0.9 < memory_of(body) * number / taken < 4


DELETIONS: dict[str, Callable[[CachedConversation], Awaitable[object]]] = {
    'sweep': lambda stored: stored.backend.housekeeping.sweep(Retention(), at=2**50),
    'erasure': lambda stored: stored.backend.housekeeping.erase(OWNER, 'c', at=0),
    'deletion': lambda stored: stored.store.delete('c'),
}


@pytest.mark.parametrize('way', DELETIONS)
async def test_deleted_conversation_leaves_cache(way: str) -> None:
    stored = CachedConversation()
    head = await stored.save('one')
    assert contents_of(await stored.backend.context(OWNER, 'c', head)) == ['one']
    await DELETIONS[way](stored)
    with pytest.raises(LookupError):
        await stored.backend.context(OWNER, 'c', head)


async def test_backend_without_cache_reads_context_each_time() -> None:
    stored = CachedConversation()
    head = await stored.save('one', 'two')
    assert contents_of(await Backend.context(stored.backend, OWNER, 'c', head)) == ['one', 'two']
    await stored.store.delete('c')
    with pytest.raises(LookupError):
        await Backend.context(stored.backend, OWNER, 'c', head)
