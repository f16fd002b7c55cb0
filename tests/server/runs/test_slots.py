"""Tests of the slots of a worker."""

from __future__ import annotations

import asyncio

import pytest

from pydantic_ai_a2a.server.runs.slots import RunSlot, Slots


async def test_run_beyond_slots_passes_no_slot_on() -> None:
    slots = Slots(1, lambda: None)
    asks = RunSlot(slots)
    await asks.__aenter__()
    plain = RunSlot(slots)
    returns = asyncio.ensure_future(asks.__aexit__())
    await asyncio.sleep(0)
    assert not plain.passes_on  # the run that has asked stands in the line
    returns.cancel()
    with pytest.raises(asyncio.CancelledError):
        await returns
    assert (slots.free, asks.passes_on, plain.passes_on) == (-1, False, False)
