"""A disk that is full while tasks run: no run is lost or repeated, and the server says that it takes no messages."""

from __future__ import annotations

import asyncio

from pydantic_ai_a2a import Workers

from ...client import LIMIT, state_of, texts
from ...dialects import unversioned
from ..clerk import Clerk, readiness, refused, until_ready
from ..full_disk import Disk, disk
from ..rows import covers
from ..stage import ended, serving, told_in_log

pytestmark = unversioned('where tasks are kept is below what versions differ in')
ROW = 'storage error in one task'
__all__ = ('disk',)


@covers(ROW)
async def test_a_run_on_a_full_disk_goes_on_once_there_is_room_and_repeats_nothing(disk: Disk) -> None:
    clerk = Clerk()
    async with serving(clerk.agent, backend=disk.backend, workers=Workers(lease=0.3, attempts=1)) as client:
        task = await client.send('hi', returnImmediately=True)
        await clerk.reached.wait()
        disk.fill()
        with told_in_log('The store is unavailable; task') as waiting:
            clerk.go_on.set()
            assert await asyncio.to_thread(waiting.wait, LIMIT)
        assert await refused(client) == (503, '1', -32000)
        assert await readiness(client) == (503, 'read-only')
        assert await readiness(client) == (503, 'read-only')
        disk.free()
        done = await ended(client, task['id'])
        await until_ready(client)
        assert state_of(await client.send('hi')) == 'COMPLETED'
    assert (state_of(done), texts(done)) == ('COMPLETED', ['booked'])
    assert (clerk.requests, clerk.calls) == (4, 2)


@covers(ROW)
async def test_a_disk_that_is_full_when_nothing_runs_makes_the_server_unready(disk: Disk) -> None:
    clerk = Clerk()
    async with serving(clerk.agent, backend=disk.backend) as client:
        for _ in range(2):
            assert await readiness(client) == (200, 'ok')
        disk.fill()
        assert await refused(client) == (503, '1', -32000)
        assert await readiness(client) == (503, 'read-only')
        disk.free()
        await until_ready(client)
