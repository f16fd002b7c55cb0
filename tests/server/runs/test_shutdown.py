from __future__ import annotations

import asyncio
import signal
from types import FrameType

from pydantic_ai_a2a.server.runs.shutdown import Shutdown

from ...app_client import LIMIT

TERM, INT = signal.SIGTERM, signal.SIGINT


class Log(list[str]):
    """What happens, in order; the server's own handler is the last of a departure."""

    def __init__(self) -> None:
        self.told = asyncio.Event()

    def shutdown(self, name: str, delay: float) -> Shutdown:
        loop = asyncio.get_running_loop()

        def drain(at_once: bool) -> None:
            self.append(f'{name} {"stops" if at_once else "drains"}')

        return Shutdown(loop, delay, announce=lambda: self.append(f'{name} leaves'), drain=drain)

    def server(self, signum: int, frame: FrameType | None) -> None:
        self.append(f'server gets {signal.Signals(signum).name}')
        self.told.set()


async def callbacks_run() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def timers_elapsed(delay: float) -> None:
    """Wait until all timers of this delay have been called whose start was scheduled before."""
    loop, called = asyncio.get_running_loop(), asyncio.Event()
    loop.call_soon_threadsafe(loop.call_later, delay, called.set)
    async with asyncio.timeout(LIMIT):
        await called.wait()


async def test_signal_without_drain_delay_reaches_server_at_once() -> None:
    log = Log()
    log.shutdown('app', 0.0).before(log.server)(TERM, None)
    assert log == ['app leaves', 'server gets SIGTERM']
    await callbacks_run()
    assert log == ['app leaves', 'server gets SIGTERM', 'app drains']


async def test_second_signal_ends_the_drain() -> None:
    log = Log()
    handler = log.shutdown('app', 0.0).before(log.server)
    handler(INT, None)
    handler(TERM, None)
    await callbacks_run()
    assert log == ['app leaves', 'server gets SIGINT', 'server gets SIGTERM', 'app drains', 'app stops']


async def test_drain_delay_postpones_signal_to_server() -> None:
    log = Log()
    log.shutdown('app', 0.01).before(log.server)(TERM, None)
    assert log == ['app leaves']
    async with asyncio.timeout(LIMIT):
        await log.told.wait()
    await callbacks_run()
    assert log == ['app leaves', 'server gets SIGTERM', 'app drains']


async def test_second_signal_skips_the_drain_delay() -> None:
    log = Log()
    shutdown = log.shutdown('app', 0.01)
    shutdown.before(log.server)(TERM, None)
    shutdown.before(log.server)(INT, None)
    assert log == ['app leaves', 'server gets SIGINT']
    await timers_elapsed(0.01)  # the first one's time is over, and it is told nothing more
    assert log == ['app leaves', 'server gets SIGINT', 'app drains']


async def test_apps_in_process_share_longest_drain_delay() -> None:
    log = Log()
    inner = log.shutdown('inner', 0.01).before(log.server)
    log.shutdown('outer', 0.0).before(inner)(TERM, None)
    assert log == ['inner leaves', 'outer leaves']
    async with asyncio.timeout(LIMIT):
        await log.told.wait()
    await callbacks_run()
    assert log == ['inner leaves', 'outer leaves', 'server gets SIGTERM', 'outer drains', 'inner drains']


def test_app_without_running_event_loop_forwards_signal() -> None:
    async def depart() -> tuple[Shutdown, Log]:
        log = Log()
        return log.shutdown('app', 60.0), log

    shutdown, log = asyncio.run(depart())
    shutdown.before(log.server)(TERM, None)
    assert log == ['app leaves', 'server gets SIGTERM']
