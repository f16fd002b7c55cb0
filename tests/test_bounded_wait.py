"""Waits for at most some seconds."""

from __future__ import annotations

import asyncio

import pytest

from pydantic_ai_a2a.bounded_wait import bounded_wait

from .app_client import LIMIT


async def raise_timeout() -> str:
    raise TimeoutError('late')


async def test_bounded_wait_returns_result() -> None:
    assert await bounded_wait(None, asyncio.sleep(0, 'result')) == 'result'
    assert await bounded_wait(LIMIT, asyncio.sleep(0, 'result')) == 'result'
    assert await bounded_wait(LIMIT, asyncio.sleep(0, 'result'), asyncio.Future()) == 'result'


async def test_bounded_wait_ends_after_timeout() -> None:
    async with asyncio.timeout(LIMIT):
        for seconds in (-1.0, 0.0, 0.01):
            assert await bounded_wait(seconds, asyncio.Event().wait()) is None
        assert await bounded_wait(0.01, asyncio.Event().wait(), asyncio.Future()) is None


async def test_bounded_wait_ends_when_client_disconnects() -> None:
    left = asyncio.Future[None]()
    left.set_result(None)
    async with asyncio.timeout(LIMIT):
        assert await bounded_wait(None, asyncio.Event().wait(), left) is None


async def test_bounded_wait_raises_timeout_of_awaited_work() -> None:
    with pytest.raises(TimeoutError, match='late'):
        await bounded_wait(LIMIT, raise_timeout())


async def test_canceled_bounded_wait_cancels_work() -> None:
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with asyncio.timeout(LIMIT):
        waiting = asyncio.ensure_future(bounded_wait(LIMIT, work()))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert ended.is_set()


async def test_bounded_wait_cancels_work_of_left_client() -> None:
    left, begun, ended = asyncio.Future[None](), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with asyncio.timeout(LIMIT):
        waiting = asyncio.ensure_future(bounded_wait(LIMIT, work(), left))
        await begun.wait()
        left.set_result(None)
        assert await waiting is None
        await asyncio.sleep(0)
    assert ended.is_set()
