"""Webhooks of tasks in memory, and the deliveries of events to them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from pydantic_core import from_json

from ...clock import Clock
from ...errors import InvalidParamsError, TaskNotFoundError, UnsupportedOperationError
from ...protocol import stored
from ...types import TaskEvent
from ..ports import DeadDelivery, Delivery, Leased, PushConfig, Takes
from .records import PendingDelivery, Task, Webhook

_TAKES: Mapping[Takes, int] = {'statuses': 0, 'artifacts': 1, 'chunks': 2}
_WEBHOOK, _DELIVERY = 800, 400
"""Bytes of a webhook and of a delivery, besides their contents."""


class Webhooks:
    """The webhooks of all tasks.

    Args:
        clock: Measures leases and pauses.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._places: dict[int, Webhook] = {}
        self._due: list[tuple[int, int]] = []
        """Webhooks with a delivery to send: time of the next try, `seq`."""
        self._deliveries: dict[str, PendingDelivery] = {}
        self._dead: list[tuple[int, str]] = []
        """Dead deliveries: time, id."""
        self._numbers = 0
        self.listeners: list[Callable[[], object]] = []
        """Callbacks of senders."""
        self.size = 0
        """Bytes of all webhooks and deliveries."""

    # --- configurations ---------------------------------------------------------------------------------------------

    def check_put(self, task: Task | None, config: PushConfig, limit: int) -> None:
        """Refuse a configuration above the limit of a task; None stands for a new task.

        Raises:
            InvalidParamsError: The task has `limit` configurations.
        """
        webhooks = task.webhooks if task is not None and task.webhooks else {}
        if config.id not in webhooks and len(webhooks) >= limit:
            raise InvalidParamsError(
                f'The task already has the maximum of {limit} push notification configurations: delete one first.'
            )

    def put(self, task: Task, config: PushConfig) -> None:
        """Add a configuration, or replace the configuration with the same id."""
        task.webhooks = task.webhooks or {}
        webhook = task.webhooks.get(config.id)
        self.size += len(config.body)
        if webhook is not None:
            self.size -= len(webhook.config.body)
            webhook.config = config
        else:
            self._numbers += 1
            webhook = task.webhooks[config.id] = self._places[self._numbers] = Webhook(self._numbers, task, config)
            self.size += _WEBHOOK
        task.push = max(task.push, _TAKES[config.takes], 1)

    def configs(self, task: Task) -> list[PushConfig]:
        """Return the configurations of a task, the oldest first."""
        return [webhook.config for webhook in (task.webhooks or {}).values()]

    def get(self, task: Task, config_id: str | None) -> PushConfig:
        """Return a configuration of a task; the oldest for None.

        Raises:
            TaskNotFoundError: The task has no such configuration.
        """
        for config in self.configs(task):
            if config_id in (None, config.id):
                return config
        raise TaskNotFoundError(
            'The task has no push notification configuration with this id: list the configurations of the task.'
        )

    def copy(self, task: Task, new: Task) -> None:
        """Copy the configurations of a task to a new task."""
        for config in self.configs(task):
            self.put(new, config)
        new.push = task.push

    def delete(self, task: Task, config_id: str) -> None:
        """Delete a configuration with all deliveries."""
        if task.webhooks is not None and (webhook := task.webhooks.pop(config_id, None)) is not None:
            self._drop(webhook)

    def drop(self, task: Task) -> None:
        """Delete all configurations of a task with all deliveries."""
        for webhook in (task.webhooks or {}).values():
            self._drop(webhook)
        task.webhooks = None

    def _drop(self, webhook: Webhook) -> None:
        self._set_due(webhook, None)
        del self._places[webhook.seq]
        self.size -= len(webhook.config.body) + _WEBHOOK
        for delivery in (*webhook.pending.values(), *webhook.dead.values()):
            self._forget(delivery)

    def _forget(self, delivery: PendingDelivery) -> None:
        del self._deliveries[delivery.id]
        self.size -= len(delivery.event.payload) + _DELIVERY
        if delivery.died_at is not None:
            del self._dead[bisect_left(self._dead, (delivery.died_at, delivery.id))]

    def tasks(self) -> Iterable[Task]:
        """Return the tasks with an event to send."""
        return dict.fromkeys(self._places[seq].task for _, seq in self._due)

    # --- new deliveries ---------------------------------------------------------------------------------------------

    def enqueue(self, task: Task, events: Sequence[TaskEvent], artifacts: Sequence[tuple[str, bytes]]) -> None:
        """Add the deliveries of new events. `artifacts` are the final artifacts, if known: (artifactId, JSON)."""
        for event in events:
            if event.state is not None:
                self._add(task, event, (0, 1, 2))
                continue
            whole, last = stored.piece(event.payload)
            self._add(task, event, (1, 2) if whole else (2,))
            if last and not whole and any(config.takes == 'artifacts' for config in self.configs(task)):
                self._add(task, TaskEvent(event.n, None, _whole(task, event, dict(artifacts))), (1,))
        self._tell()

    def _tell(self) -> None:
        """Wake the senders, because a delivery may be due."""
        for listener in tuple(self.listeners):
            listener()

    def _add(self, task: Task, event: TaskEvent, takes: Sequence[int]) -> None:
        delivery_id = stored.new_id()
        for webhook in (task.webhooks or {}).values():
            if _TAKES[webhook.config.takes] not in takes:
                continue
            self._numbers += 1
            delivery = PendingDelivery(self._numbers, f'{delivery_id}.{webhook.seq}', webhook, event)
            self._deliveries[delivery.id] = webhook.pending[delivery.seq] = delivery
            self.size += len(event.payload) + _DELIVERY
            if webhook.due_at is None:
                self._set_due(webhook, 0)

    def _set_due(self, webhook: Webhook, due_at: int | None) -> None:
        if webhook.due_at is not None:
            del self._due[bisect_left(self._due, (webhook.due_at, webhook.seq))]
        webhook.due_at = due_at
        if due_at is not None:
            insort(self._due, (due_at, webhook.seq))

    # --- the sender -------------------------------------------------------------------------------------------------

    def wait(self, held: Mapping[str, int], room: int) -> int | None:
        """Return how long a sender waits for its next delivery; see `Leased.wait`."""
        for due_at, seq in self._due:
            if held.get(self._places[seq].task.owner, 0) < room:
                return max(due_at - self._clock.steady(), 0)
        return None

    def lease(self, *, lease: int, limit: int, held: Mapping[str, int]) -> Leased:
        """See `Outbox.lease`."""
        now, has = self._clock.steady(), Counter(held)
        chosen: list[Webhook] = []
        for due_at, seq in self._due:
            webhook = self._places[seq]
            if due_at > now or len(chosen) == limit:
                break
            if has[webhook.task.owner] < limit - len(chosen):
                has[webhook.task.owner] += 1
                chosen.append(webhook)
        for webhook in chosen:
            webhook.lease += 1
            self._set_due(webhook, now + lease)
        return Leased([_leased(webhook) for webhook in chosen], self.wait(has, limit - len(chosen)))

    def _held(self, delivery: Delivery) -> Webhook | None:
        """Return the webhook of a delivery if the holder still has its lease."""
        webhook = self._places.get(delivery.place)
        return webhook if webhook is not None and webhook.lease == delivery.lease else None

    def _go_on(self, webhook: Webhook) -> None:
        webhook.lease += 1
        self._set_due(webhook, 0 if webhook.pending else None)

    def done(self, delivery: Delivery) -> None:
        """See `Outbox.done`."""
        if (webhook := self._held(delivery)) is not None:
            sent = self._deliveries[delivery.id]
            del webhook.pending[sent.seq]
            self._forget(sent)
            self._go_on(webhook)

    def failed(self, delivery: Delivery, *, at: int, pause: int | None, error: str) -> None:
        """See `Outbox.failed`."""
        if (webhook := self._held(delivery)) is None:
            return
        tried = self._deliveries[delivery.id]
        tried.failures += 1
        tried.error = error
        if pause is not None:
            webhook.lease += 1
            self._set_due(webhook, self._clock.steady() + pause)
            return
        tried.died_at = at
        webhook.dead[tried.seq] = webhook.pending.pop(tried.seq)
        insort(self._dead, (at, tried.id))
        self._go_on(webhook)

    def release(self, delivery: Delivery) -> None:
        """See `Outbox.release`."""
        if (webhook := self._held(delivery)) is not None:
            self._go_on(webhook)

    def dead(
        self, owner: str | None = None, *, limit: int = 100, after: tuple[int, str] | None = None
    ) -> list[DeadDelivery]:
        """See `Outbox.dead`."""
        page: list[DeadDelivery] = []
        for at, delivery_id in self._dead[0 if after is None else bisect_right(self._dead, after) :]:
            given_up = self._deliveries[delivery_id]
            if len(page) < limit and owner in (None, given_up.webhook.task.owner):
                page.append(_dead(given_up, at))
        return page

    def retry(self, delivery_id: str) -> None:
        """See `Outbox.retry`."""
        delivery = self._deliveries.get(delivery_id)
        if delivery is None or delivery.died_at is None:
            raise UnsupportedOperationError(
                'No dead delivery has this id: list the dead deliveries. A retried delivery is no longer dead.'
            )
        del self._dead[bisect_left(self._dead, (delivery.died_at, delivery.id))]
        webhook = delivery.webhook
        delivery.died_at, delivery.failures = None, 0
        webhook.pending = dict(sorted([*webhook.pending.items(), (delivery.seq, webhook.dead.pop(delivery.seq))]))
        if webhook.due_at is None:
            self._set_due(webhook, 0)
        self._tell()


def _whole(task: Task, last: TaskEvent, final: Mapping[str, bytes]) -> bytes:
    """Return an update with the whole artifact of a last chunk (§4.2.2)."""
    artifact_id: str = from_json(last.payload)['artifactUpdate']['artifact']['artifactId']
    artifact = final.get(artifact_id)
    if artifact is None:
        bodies = stored.assemble(task.artifacts, task.updates(last.n))
        artifact = next(body for body in bodies if from_json(body)['artifactId'] == artifact_id)
    return stored.artifact_update(task.id, task.context_id, artifact)


def _leased(webhook: Webhook) -> Delivery:
    delivery, task = next(iter(webhook.pending.values())), webhook.task
    return Delivery(
        id=delivery.id,
        task_id=task.id,
        owner=task.owner,
        config=webhook.config,
        event=delivery.event,
        failures=delivery.failures,
        place=webhook.seq,
        lease=webhook.lease,
        traceparent=task.traceparent,
    )


def _dead(delivery: PendingDelivery, at: int) -> DeadDelivery:
    return DeadDelivery(
        id=delivery.id,
        task_id=delivery.webhook.task.id,
        config_id=delivery.webhook.config.id,
        owner=delivery.webhook.task.owner,
        n=delivery.event.n,
        state=delivery.event.state,
        at=at,
        failures=delivery.failures,
        error=delivery.error,
    )
