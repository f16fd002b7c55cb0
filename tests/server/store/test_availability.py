"""The availability of a store, as a probe measures it."""

from __future__ import annotations

import asyncio

import pytest

from pydantic_ai_a2a.errors import StoreUnavailable
from pydantic_ai_a2a.server.store.availability import Availability


async def write() -> None:
    """A store that takes what it is given."""


async def test_concurrent_check_uses_last_known_availability() -> None:
    availability, probing, answers = Availability('store'), asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        probing.set()
        await answers.wait()

    probe = asyncio.create_task(availability.check(slow))
    await probing.wait()
    await availability.check(write)
    answers.set()
    await probe


async def test_canceled_probe_marks_store_unavailable() -> None:
    availability, probing = Availability('store'), asyncio.Event()

    async def hanging() -> None:
        probing.set()
        await asyncio.Event().wait()

    probe = asyncio.create_task(availability.check(hanging))
    await probing.wait()
    probe.cancel()
    with pytest.raises(asyncio.CancelledError):
        await probe
    with pytest.raises(StoreUnavailable):
        await availability.check(write)
