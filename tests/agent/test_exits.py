"""Exceptions that would end the process: which become errors, and which are left as they are."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from pydantic_ai_a2a.agent.exits import Exited, contained


async def leave(error: BaseException) -> None:
    raise error


def step(work: Coroutine[Any, Any, Any]) -> None:
    """Execute a coroutine up to its end or its first pause, in this thread."""
    work.send(None)


@pytest.mark.parametrize('error', [SystemExit(1), GeneratorExit()], ids=['SystemExit', 'GeneratorExit'])
async def test_what_code_raises_to_end_the_process_becomes_an_error(error: BaseException) -> None:
    with pytest.raises(Exited, match=type(error).__name__) as raised:
        await contained(leave(error))
    assert raised.value.__cause__ is error


async def test_ctrl_c_is_left_as_it_is() -> None:
    work = contained(leave(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        step(work)


async def test_a_coroutine_can_be_closed_while_a_loop_runs() -> None:
    work = contained(asyncio.sleep(0))
    await asyncio.create_task(_step_in_a_task(work))
    work.close()


async def _step_in_a_task(work: Coroutine[Any, Any, Any]) -> None:
    step(work)


def test_a_coroutine_can_be_closed_after_its_loop() -> None:
    async def begin() -> Coroutine[Any, Any, Any]:
        work = contained(asyncio.sleep(0))
        step(work)
        return work

    asyncio.run(begin()).close()
