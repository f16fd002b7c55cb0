"""When deliveries are sent: at once, again, later, or by another process, whatever the wall clocks say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pydantic_ai_a2a import Push
from pydantic_ai_a2a.clock import SYSTEM, Clock
from pydantic_ai_a2a.errors import StoreUnavailable
from pydantic_ai_a2a.server.push.stored_targets import TargetCipher
from pydantic_ai_a2a.server.push.webhook_sender import WebhookSender, pause_after
from pydantic_ai_a2a.server.store.ports import Backend, Delivery, Leased, Outbox, PushConfig
from pydantic_ai_a2a.server.store.sql.webhook_ports import Due, SqlOutbox
from pydantic_ai_a2a.server.store.sqlite.backend import SqliteFileBackend
from pydantic_ai_a2a.server.store.sqlite.memory import MemoryBackend
from pydantic_ai_a2a.server.store.sqlite.settings import SqliteFile
from pydantic_ai_a2a.types import PushTarget

from ...app_client import LIMIT
from ...behaviour.refusals import BASE_EXCEPTIONS
from ...cases import each_case
from ...clocks import HOUR, SetClock
from ...constants import with_constants
from ...logs import log_event, loop_errors
from ...suites.push import configs_of, lease_deliveries, outbox_of
from ...suites.values import EXPIRED, LEASE, OWNER, READER_LAG, START, message, status_event, submit
from ...webhooks import NEVER_ANSWERS, Webhook, webhook

pytestmark = pytest.mark.anyio
LOCAL = with_constants(Push, private_hosts=['127.0.0.1'], backoff=0.0001, timeout=LIMIT)
SEAL = TargetCipher([])


def test_retry_pauses_grow_to_an_hour() -> None:
    pauses = [pause_after(failures, 1.0, 0.5) for failures in range(1, 9)]
    assert pauses == [1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 3600.0, 3600.0]
    assert [pause_after(2, 1.0, chance) for chance in (0.0, 1.0)] == [2.0, 6.0]
    assert pause_after(1, 0.1, 0.5) == 0.1


@each_case(
    ('status', 'retry_after', 'seconds'),
    [(429, b'120', 120), (503, b'7200', 3600), (500, b'120', 0), (429, b'tomorrow', 0)],
)
async def test_retry_after_of_webhook_bounds_next_try(status: int, retry_after: bytes, seconds: int) -> None:
    backend = memory(SetClock())
    answer = b'HTTP/1.1 %d No\r\nRetry-After: %b\r\nContent-Length: 0\r\n\r\n' % (status, retry_after)
    async with webhook(answer) as hook:
        await canceled_task_with_webhook(backend, hook)
        with log_event(f'(HTTP {status}), attempt 1 of') as failed:
            async with sending(backend):
                await asyncio.to_thread(failed.wait, LIMIT)
    leased = await outbox_of(backend).lease(lease=LEASE, limit=1, held={})
    assert abs((leased.wait or 0) - seconds * 1000) < 60_000  # the machine may have slept meanwhile


async def test_short_retry_after_shortens_no_pause() -> None:
    backend = memory(SetClock())
    settings = with_constants(Push, private_hosts=['127.0.0.1'], backoff=600.0, timeout=LIMIT)
    async with webhook(b'HTTP/1.1 429 No\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n') as hook:
        await canceled_task_with_webhook(backend, hook)
        with log_event('(HTTP 429), attempt 1 of') as failed:
            async with sending(backend, settings):
                await asyncio.to_thread(failed.wait, LIMIT)
    leased = await outbox_of(backend).lease(lease=LEASE, limit=1, held={})
    assert leased.wait is not None
    assert leased.wait >= 300_000


def memory(clock: Clock = SYSTEM) -> MemoryBackend:
    return MemoryBackend('agent', reader_lag=10_000, clock=clock)


@asynccontextmanager
async def sending(
    backend: MemoryBackend | SqliteFileBackend,
    settings: Push = LOCAL,
    outbox: Outbox | None = None,
) -> AsyncGenerator[None]:
    sender = WebhookSender(outbox or outbox_of(backend), backend.reader, settings, SEAL, now=backend.now)
    async with asyncio.timeout(LIMIT):
        try:
            yield
        finally:
            await sender.aclose()


async def canceled_task_with_webhook(backend: Backend, hook: Webhook, task_id: str = 't', owner: str = OWNER) -> None:
    """A task that is canceled, of which the webhook is to be told."""
    await submit(backend, message(new=task_id, owner=owner))
    body = SEAL.dump(PushTarget(id='c', url=hook.url))
    config = PushConfig(id='c', version='fasta2a', takes='artifacts', body=body)
    await configs_of(backend).create(task_id, owner, config, limit=1)
    await backend.queue.cancel(task_id, owner, at=START)


async def notified_states(hook: Webhook, count: int = 1) -> list[Any]:
    return [each.json['statusUpdate']['status']['state'] for each in await hook.got(count)]


async def test_due_delivery_is_sent_when_sender_starts() -> None:
    backend = memory()
    async with webhook() as hook:
        await canceled_task_with_webhook(backend, hook)
        async with sending(backend):
            assert await notified_states(hook) == ['canceled']  # as FastA2A writes it


async def test_delivery_stored_by_another_thread_is_sent() -> None:
    backend = memory()
    async with webhook() as hook, sending(backend):
        await asyncio.to_thread(lambda: asyncio.run(canceled_task_with_webhook(backend, hook)))
        assert await notified_states(hook) == ['canceled']


async def test_closing_sender_sends_due_deliveries() -> None:
    backend = memory()
    async with webhook() as hook:
        async with sending(backend):
            await canceled_task_with_webhook(backend, hook)
        assert await notified_states(hook) == ['canceled']


async def test_closing_sender_releases_unanswered_deliveries() -> None:
    backend = memory()
    async with webhook(NEVER_ANSWERS) as hook:
        async with sending(backend):
            await canceled_task_with_webhook(backend, hook)
            [first] = await hook.got(1)
        [delivery] = (await outbox_of(backend).lease(lease=LEASE, limit=1, held={})).deliveries
        assert (delivery.id, delivery.failures) == (first.id, 0)


async def test_unreleased_delivery_is_due_after_its_lease() -> None:
    clock = SetClock()
    backend = memory(clock)
    with loop_errors() as told, log_event('failed inside the server') as logged:
        async with (
            webhook(NEVER_ANSWERS) as hook,
            sending(backend, outbox=OutboxFailingOnce(outbox_of(backend), 'release')),
        ):
            await canceled_task_with_webhook(backend, hook)
            await hook.got(1)
    assert (told, logged.is_set()) == ([], True)
    assert not (await outbox_of(backend).lease(lease=LEASE, limit=1, held={})).deliveries
    with clock.later(2_000 * int(LIMIT)):
        [delivery] = (await outbox_of(backend).lease(lease=LEASE, limit=1, held={})).deliveries
    assert delivery.failures == 0


def test_closed_event_loop_does_not_block_deliveries() -> None:
    backend = memory()

    async def begin() -> None:
        WebhookSender(outbox_of(backend), backend.reader, LOCAL, SEAL, now=SYSTEM.now)

    async def go_on() -> None:
        async with webhook() as hook:
            await canceled_task_with_webhook(backend, hook)
            await canceled_task_with_webhook(backend, hook, 'u')
            async with sending(backend):
                assert await notified_states(hook, 2) == ['canceled'] * 2

    asyncio.run(begin())
    asyncio.run(go_on())


async def test_full_sender_continues_when_a_delivery_ends() -> None:
    backend, answered = memory(), asyncio.Event()
    settings = with_constants(Push, private_hosts=['127.0.0.1'], at_once=1, timeout=LIMIT)
    async with webhook(answered) as slow, webhook() as fast, sending(backend, settings):
        await canceled_task_with_webhook(backend, slow)
        await slow.got(1)
        await canceled_task_with_webhook(backend, fast, 'u')
        answered.set()
        assert await notified_states(fast) == ['canceled']


async def test_hanging_webhooks_leave_room_for_another_owner() -> None:
    backend = memory()
    settings = with_constants(Push, private_hosts=['127.0.0.1'], at_once=4, timeout=LIMIT)
    async with webhook(NEVER_ANSWERS) as slow, webhook() as fast, sending(backend, settings):
        for n in range(8):
            await canceled_task_with_webhook(backend, slow, f'slow {n}')
        await slow.got(2)
        for n in range(4):
            await canceled_task_with_webhook(backend, fast, f'fast {n}', '/bob')
        assert await notified_states(fast, 4) == ['canceled'] * 4
        assert len(slow.received) == 2


class OutboxFailingOnce(Outbox):
    """Raises an error in the first call of one method."""

    def __init__(self, outbox: Outbox, method: str, error: Callable[[], BaseException] = StoreUnavailable) -> None:
        self._outbox = outbox
        self._breaks = {method}
        self._error = error

    def _break(self, method: str) -> None:
        if method in self._breaks:
            self._breaks.clear()
            raise self._error()

    async def lease(self, *, lease: int, limit: int, held: Mapping[str, int]) -> Leased:
        self._break('lease')
        return await self._outbox.lease(lease=lease, limit=limit, held=held)

    async def done(self, delivery: Delivery) -> None:
        self._break('done')
        await self._outbox.done(delivery)

    async def failed(self, delivery: Delivery, **rest: Any) -> None:
        await self._outbox.failed(delivery, **rest)

    async def release(self, delivery: Delivery) -> None:
        self._break('release')
        await self._outbox.release(delivery)

    async def dead(self, *args: Any, **options: Any) -> Any:
        return await self._outbox.dead(*args, **options)

    async def retry(self, delivery_id: str) -> None:
        await self._outbox.retry(delivery_id)

    def listen(self, on_due: Any) -> Any:
        return self._outbox.listen(on_due)


@each_case(
    'method, text', [('lease', 'The outbox of webhooks could not be read'), ('done', 'failed inside the server')]
)
@pytest.mark.parametrize('error', [StoreUnavailable, *BASE_EXCEPTIONS.values()], ids=['error', *BASE_EXCEPTIONS])
async def test_sender_continues_after_failed_store_call(
    error: Callable[[], BaseException], method: str, text: str
) -> None:
    backend = memory()
    with log_event(text) as lost:
        async with webhook() as hook, sending(backend, outbox=OutboxFailingOnce(outbox_of(backend), method, error)):
            await canceled_task_with_webhook(backend, hook)
            await canceled_task_with_webhook(backend, hook, 'u')
            assert await notified_states(hook, 2) == ['canceled'] * 2
    assert lost.is_set()


class HangingOutbox(OutboxFailingOnce):
    """Never says what is due."""

    def __init__(self, outbox: Outbox) -> None:
        super().__init__(outbox, 'release')
        self.asked = asyncio.Event()

    async def lease(self, *, lease: int, limit: int, held: Mapping[str, int]) -> Leased:
        self.asked.set()
        return await asyncio.Future()


async def test_sender_stops_while_outbox_hangs(caplog: pytest.LogCaptureFixture) -> None:
    backend = memory()
    outbox = HangingOutbox(outbox_of(backend))
    async with sending(backend, outbox=outbox):
        await outbox.asked.wait()
    assert caplog.messages == []


async def test_undecryptable_webhook_is_dead_and_not_sent() -> None:
    backend = memory()
    settings = Push(private_hosts=['127.0.0.1'], tries=1)
    sealed = TargetCipher(['A' * 43 + '='])
    async with webhook() as hook:
        with log_event('no key of Push.keys decrypts the webhook'):
            await submit(backend, message(new='t'))
            config = PushConfig(
                id='c', version='1.0', takes='artifacts', body=sealed.dump(PushTarget(id='c', url=hook.url))
            )
            await configs_of(backend).create('t', OWNER, config, limit=1)
            await backend.queue.cancel('t', OWNER, at=START)
            async with sending(backend, settings):
                pass
        [dead] = await outbox_of(backend).dead()
    assert (dead.error, hook.received) == ('no key of Push.keys decrypts the webhook', [])


async def test_0_3_webhook_is_notified_of_deleted_task() -> None:
    """It went while it was under way."""
    backend = memory()
    async with webhook() as hook:
        event = status_event(1, 'completed')
        status = b'{"state":"TASK_STATE_COMPLETED","timestamp":"2023-11-14T22:13:20.000Z"}'
        event = event._replace(payload=b'{"statusUpdate":{"taskId":"t","contextId":"c","status":%s}}' % status)
        body = SEAL.dump(PushTarget(id='c', url=hook.url))
        config = PushConfig(id='c', version='0.3', takes='statuses', body=body)
        delivery = Delivery(id='d', task_id='t', owner=OWNER, config=config, event=event, failures=0, place=1, lease=1)
        async with sending(backend, outbox=SingleDeliveryOutbox(outbox_of(backend), delivery)):
            [received] = await hook.got(1)
    assert received.json == {
        'kind': 'task',
        'id': 't',
        'contextId': 'c',
        'status': {'state': 'completed', 'timestamp': '2023-11-14T22:13:20.000Z'},
    }


class SingleDeliveryOutbox(OutboxFailingOnce):
    """Has one delivery."""

    def __init__(self, outbox: Outbox, delivery: Delivery) -> None:
        super().__init__(outbox, '')
        self._deliveries = [delivery]

    async def lease(self, *, lease: int, limit: int, held: Mapping[str, int]) -> Leased:
        deliveries, self._deliveries = self._deliveries, []
        return Leased(deliveries, None)


Open = Callable[[Clock], SqliteFileBackend]


@pytest.fixture
def open_backend(tmp_path: Path) -> Iterator[Open]:
    """Opens the file once more, as another process would."""
    opened: list[SqliteFileBackend] = []

    def make(clock: Clock) -> SqliteFileBackend:
        file = SqliteFile(path=tmp_path / 'agent.db', synchronous='normal')
        opened.append(SqliteFileBackend(file, 'agent', reader_lag=READER_LAG, clock=clock))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


class ObservedOutbox(SqlOutbox):
    """Tells when a sender has asked it for deliveries."""

    def __init__(self, backend: SqliteFileBackend) -> None:
        super().__init__(backend, Due())
        self.looked = asyncio.Event()

    async def lease(self, *, lease: int, limit: int, held: Mapping[str, int]) -> Leased:
        leased = await super().lease(lease=lease, limit=limit, held=held)
        self.looked.set()
        return leased


async def test_process_with_fast_clock_skips_leased_deliveries(open_backend: Open) -> None:
    here, ahead = open_backend(SetClock()), SetClock()
    there = open_backend(ahead)
    ahead.wall = HOUR
    outbox = there.outbox = ObservedOutbox(there)
    async with webhook(NEVER_ANSWERS) as hook:
        async with sending(here):
            await canceled_task_with_webhook(here, hook)
            await hook.got(1)
            async with sending(there):
                await outbox.looked.wait()
        assert len(hook.received) == 1


async def test_orphaned_delivery_is_sent_after_clock_goes_back(open_backend: Open) -> None:
    clock = SetClock()
    backend = open_backend(clock)
    async with webhook() as hook:
        await canceled_task_with_webhook(backend, hook)
        assert len(await lease_deliveries(backend, lease=EXPIRED)) == 1
        clock.wall = -HOUR
        async with sending(backend):
            await hook.got(1)


async def test_retry_pause_ends_although_clock_went_back(open_backend: Open) -> None:
    clock = SetClock()
    backend = open_backend(clock)
    async with webhook() as hook:
        await canceled_task_with_webhook(backend, hook)
        [delivery] = await lease_deliveries(backend)
        await outbox_of(backend).failed(delivery, at=backend.now(), pause=HOUR, error='HTTP 500')
        clock.wall = -HOUR
        assert await lease_deliveries(backend) == []
        with clock.later():
            async with sending(backend):
                await hook.got(1)
