"""The count of unsent bytes: which answers fit, and which are cut for others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf

import pytest
from starlette.types import Message, Scope

from pydantic_ai_a2a.errors import OverloadedError
from pydantic_ai_a2a.server.http import aborted_connections
from pydantic_ai_a2a.server.service import unsent_answers
from pydantic_ai_a2a.server.service.unsent_answers import CHUNK, AnswerUnread, Readers, Unsent

from ...bounds import LIMIT


def reader_limits(limit: int = 100, seconds: float = 60.0) -> Readers:
    return Readers(seconds, limit, Unsent())


@pytest.fixture
def no_slow_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    """No reader is a slow one, however long the test is stopped."""
    monkeypatch.setattr(unsent_answers, 'STALL', inf)


@pytest.fixture
def only_slow_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every reader is a slow one from the beginning."""
    monkeypatch.setattr(unsent_answers, 'STALL', 0.0)


async def unread_answer(clients: Readers, size: int) -> asyncio.Task[None]:
    """An answer that nobody reads."""
    begun = asyncio.Event()

    async def answer() -> None:
        with clients.answer(size):
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(answer())
    await begun.wait()
    return task


async def outcome_of(task: asyncio.Task[None]) -> BaseException | None:
    async with asyncio.timeout(LIMIT):
        await asyncio.wait([task])
    return None if task.cancelled() else task.exception()


async def test_forgotten_answer_no_longer_counts_as_unsent() -> None:
    clients = reader_limits()
    with clients.answer(40) as answer:
        clients.unsent.forget(answer)
        answer.left = 30
        assert clients.unsent.bytes == 0
    assert clients.unsent.bytes == 0


@pytest.mark.usefixtures('no_slow_readers')
async def test_answer_over_limit_is_refused_without_slow_readers() -> None:
    clients = reader_limits()
    first = await unread_answer(clients, 60)
    with clients.answer(40):
        assert clients.unsent.bytes == 100
        with pytest.raises(OverloadedError) as refused:
            clients.answer(1)
    assert refused.value.headers == {'Retry-After': '1'}
    assert clients.unsent.bytes == 60
    first.cancel()
    assert await outcome_of(first) is None
    assert clients.unsent.bytes == 0


async def test_answer_longer_than_limit_is_sent_if_alone() -> None:
    clients = reader_limits()
    with clients.answer(1000):
        assert clients.unsent.bytes == 1000


@pytest.mark.usefixtures('only_slow_readers')
async def test_no_more_slow_readers_are_cut_than_needed() -> None:
    clients = reader_limits()
    tasks = [await unread_answer(clients, 50) for _ in range(2)]
    with clients.answer(40):
        assert clients.unsent.bytes == 90
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED, timeout=LIMIT)
        [cut] = [task for task in tasks if task.done()]
        assert isinstance(await outcome_of(cut), AnswerUnread)
    [other] = [task for task in tasks if task is not cut]
    with clients.answer(1000):  # more than there is room for at all: for this, all others are cut
        assert isinstance(await outcome_of(other), AnswerUnread)


async def test_readers_are_not_cut_if_too_little_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    clients = reader_limits()
    slow = await unread_answer(clients, 30)

    def is_slow(answer: unsent_answers.UnsentAnswer, now: float) -> bool:
        return answer.left == 30

    monkeypatch.setattr(unsent_answers.UnsentAnswer, 'is_slow', is_slow)
    with clients.answer(60), pytest.raises(OverloadedError):
        clients.answer(50)
    await asyncio.sleep(0)
    assert not slow.done()
    slow.cancel()
    await outcome_of(slow)


@pytest.mark.usefixtures('only_slow_readers')
async def test_answer_sent_before_its_cut_is_not_cancelled() -> None:
    clients = reader_limits()
    with clients.answer(60) as answer:
        clients.answer(60)
        await answer.write([b'x' * 10])
        assert (answer.left, clients.unsent.bytes) == (10, 60)
    await asyncio.sleep(0)
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]


@pytest.mark.usefixtures('only_slow_readers')
async def test_cut_request_can_still_be_cancelled_from_outside() -> None:
    clients = reader_limits()
    slow = await unread_answer(clients, 60)
    with clients.answer(60):
        slow.cancel()
        assert await outcome_of(slow) is None
    assert slow.cancelled()


@pytest.mark.usefixtures('only_slow_readers')
async def test_next_reader_is_cut_after_earlier_cuts_end() -> None:
    clients = reader_limits()
    slow = await unread_answer(clients, 60)
    with clients.answer(50):
        assert (clients.unsent.bytes, clients.unsent.ending) == (50, 60)
        with pytest.raises(OverloadedError):
            clients.answer(60)
        with clients.answer(40):
            assert (clients.unsent.bytes, clients.unsent.ending) == (90, 60)
        assert isinstance(await outcome_of(slow), AnswerUnread)
        assert (clients.unsent.bytes, clients.unsent.ending) == (50, 0)
        with clients.answer(60):
            assert (clients.unsent.bytes, clients.unsent.ending) == (60, 50)


@pytest.mark.usefixtures('only_slow_readers')
async def test_cut_answer_counts_its_remaining_size_until_its_end() -> None:
    clients = reader_limits()
    with clients.answer(60) as answer:
        clients.answer(60)
        assert clients.unsent.ending == 60
        await answer.write([b'x' * 10])
        assert clients.unsent.ending == 10
    assert clients.unsent.ending == 0


@pytest.mark.usefixtures('only_slow_readers')
async def test_cut_answer_of_closed_loop_counts_no_memory() -> None:
    clients = reader_limits()

    async def begin() -> unsent_answers.UnsentAnswer:
        return clients.answer(60)

    cut = await asyncio.to_thread(asyncio.run, begin())
    with clients.answer(100):
        cut.left = 10
        assert (cut.left, clients.unsent.bytes, clients.unsent.ending) == (10, 100, 0)


async def test_reader_counts_as_slow_if_stalled_or_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun = 1000.0
    monkeypatch.setattr(unsent_answers, 'monotonic', lambda: begun)
    clients = reader_limits(10**9, seconds=10.0)
    with clients.answer(0) as answer:
        await answer.write([b'x' * CHUNK * 4])
        sent = asyncio.Event()

        async def send(message: Message) -> None:
            if sent.is_set():
                await asyncio.Event().wait()
            sent.set()

        sending = asyncio.create_task(answer.send(send))
        await sent.wait()
        assert answer.left == 3 * CHUNK
        assert answer.pace(begun + 100) == CHUNK / 100
        assert (answer.is_slow(begun), answer.is_slow(begun + 100)) == (False, True)
        clients.seconds = 1e-9
        assert answer.is_slow(begun + 0.5)
        sending.cancel()
        await outcome_of(sending)


@pytest.mark.parametrize('rest', [0, 11])
async def test_chunked_answer_yields_to_concurrent_requests(rest: int) -> None:
    pieces = [b'a', b'b' * (CHUNK * 20 - 1), b'', b'c' * rest]
    clients, turns, bodies = reader_limits(10**9), 0, list[bytes]()

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def send(message: Message) -> None:
        bodies.append(message['body'])

    counting = asyncio.create_task(count())
    with clients.answer(1) as answer:
        await answer.write(iter(pieces))
        assert clients.unsent.bytes == sum(map(len, pieces))
        await answer.send(send)
    counting.cancel()
    assert b''.join(bodies) == b''.join(pieces)
    assert [len(body) for body in bodies] == [CHUNK] * 20 + [rest] * bool(rest) + [0]
    assert turns >= 3


class UvicornCycle:
    """What uvicorn calls an app with."""

    def __init__(self, transport: object) -> None:
        self.transport = transport

    async def receive(self) -> Message:
        raise AssertionError('nobody reads')


class Transport:
    def __init__(self) -> None:
        self.aborts = asyncio.Semaphore(0)

    def get_extra_info(self, name: str) -> None:
        """A transport without a socket, such as that of a pipe."""

    def abort(self) -> None:
        self.aborts.release()


def scope_of(receive: Callable[..., object], **fields: object) -> Scope:
    return {'type': 'http', aborted_connections.REQUEST: receive, **fields}


@pytest.mark.parametrize('version', ['1.1', '2'])
async def test_only_http_1_connections_are_aborted(version: str) -> None:
    transport = Transport()
    scope = scope_of(UvicornCycle(transport).receive, http_version=version)
    await aborted_connections.abort(scope)
    aborted_connections.abort_later(scope, 0.0)
    if version == '1.1':
        async with asyncio.timeout(LIMIT):
            await transport.aborts.acquire()
            await transport.aborts.acquire()
    assert transport.aborts.locked()


async def test_abort_without_transport_has_no_effect() -> None:
    async def receive() -> Message:
        raise AssertionError('nobody reads')

    for scope in (scope_of(receive), scope_of(UvicornCycle(object()).receive)):
        await aborted_connections.abort(scope)
        aborted_connections.abort_later(scope, 0.0)
