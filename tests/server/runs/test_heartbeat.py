"""The thread that renews leases: it beats while its loop is blocked, gives up on one that is stuck, ends with it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from queue import Queue
from types import SimpleNamespace

import pytest

from pydantic_ai_a2a.server.runs import heartbeat as module
from pydantic_ai_a2a.server.runs.heartbeat import Heartbeat

from ...app_client import LIMIT
from ...behaviour.refusals import BASE_EXCEPTIONS, SECRET
from ...logs import log_event

LEASE = 0.03
NAME = 'pydantic_ai_a2a heartbeat'


class RenewalCounter:
    """Counts renewals, which a test waits for in whatever thread."""

    def __init__(self) -> None:
        self.done: Queue[threading.Thread] = Queue()
        self.callbacks: Sequence[Callable[[], object]] = ()
        self.error: Callable[[], BaseException] | None = None

    async def __call__(self) -> Sequence[Callable[[], object]]:
        self.done.put(threading.current_thread())
        if self.error is not None:
            raise self.error()
        return self.callbacks

    def wait(self, times: int = 1) -> None:
        """Block until so many more have been made."""
        for _ in range(times):
            assert self.done.get(timeout=LIMIT).name == NAME


def heartbeat_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == NAME]


def stop(heartbeat: Heartbeat) -> None:
    """Stop a heartbeat, and see that its thread ends."""
    heartbeat.stop()
    for thread in heartbeat_threads():
        thread.join(LIMIT)
    assert heartbeat_threads() == []


@pytest.fixture
def frozen_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """No loop is blocked for too long, however long the thread takes."""
    monkeypatch.setattr(module, 'time', SimpleNamespace(monotonic=lambda: 0.0))


@pytest.mark.usefixtures('frozen_time')
async def test_leases_are_renewed_while_event_loop_is_briefly_blocked() -> None:
    renewals = RenewalCounter()
    called: asyncio.Future[threading.Thread] = asyncio.get_running_loop().create_future()
    renewals.callbacks = [lambda: called.done() or called.set_result(threading.current_thread())]
    heartbeat = Heartbeat(renewals, LEASE)
    renewals.wait(2)
    assert not called.done()
    async with asyncio.timeout(LIMIT):
        assert await called is threading.current_thread()
    stop(heartbeat)


@pytest.mark.usefixtures('frozen_time')
@pytest.mark.parametrize('error', [lambda: OSError(SECRET), *BASE_EXCEPTIONS.values()], ids=['error', *BASE_EXCEPTIONS])
async def test_failed_renewal_is_logged_and_tried_again(
    error: Callable[[], BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    renewals = RenewalCounter()
    renewals.error = error
    heartbeat = Heartbeat(renewals, 20 * LEASE)
    renewals.wait(2)
    heartbeat.stop()
    assert 'A heartbeat failed: the leases of the running tasks were not renewed.' in caplog.messages
    assert SECRET in caplog.text


async def test_renewals_stop_if_event_loop_is_blocked_too_long() -> None:
    renewals = RenewalCounter()
    heartbeat = Heartbeat(renewals, 20 * LEASE)
    with log_event('has been blocked') as told:
        assert told.wait(LIMIT)
    with log_event('has been blocked') as told_again:
        assert not told_again.wait(20 * LEASE)
    while not renewals.done.empty():
        renewals.done.get()
    renewed_since = asyncio.to_thread(renewals.wait)
    assert renewals.done.empty()
    async with asyncio.timeout(LIMIT):
        await renewed_since
    heartbeat.stop()


async def test_hanging_renewal_does_not_delay_next_renewal() -> None:
    renewals = RenewalCounter()
    held = threading.Event()

    async def renew() -> Sequence[Callable[[], object]]:
        first = not held.is_set()
        held.set()
        if first:
            await asyncio.Event().wait()
        return await renewals()

    heartbeat = Heartbeat(renew, 20 * LEASE)
    await asyncio.to_thread(renewals.wait, 2)
    stop(heartbeat)


async def test_at_most_four_hanging_renewals_run_at_once() -> None:
    begun, under_way, most = 0, 0, 0
    four, fifth, gate = threading.Event(), threading.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def renew() -> Sequence[Callable[[], object]]:
        nonlocal begun, under_way, most
        begun += 1
        under_way += 1
        most = max(most, under_way)
        loops.append(asyncio.get_running_loop())
        (four if begun == 4 else fifth if begun == 5 else threading.Event()).set()
        await gate.wait()
        under_way -= 1
        return ()

    heartbeat = Heartbeat(renew, LEASE)
    assert await asyncio.to_thread(four.wait, LIMIT)
    loops[0].call_soon_threadsafe(gate.set)
    assert await asyncio.to_thread(fifth.wait, LIMIT)
    heartbeat.stop()
    assert most == 4


async def test_hanging_renewal_does_not_delay_stopping() -> None:
    began = threading.Event()

    async def renew() -> Sequence[Callable[[], object]]:
        began.set()
        return await asyncio.Future()

    heartbeat = Heartbeat(renew, LEASE)
    assert began.wait(LIMIT)
    stop(heartbeat)


def test_heartbeat_thread_ends_with_its_closed_event_loop() -> None:
    async def begin() -> None:
        Heartbeat(RenewalCounter(), LEASE)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(begin())
    [thread] = heartbeat_threads()
    loop.close()
    thread.join(LIMIT)
    assert heartbeat_threads() == []
