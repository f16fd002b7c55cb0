"""The commands `dead-deliveries list` and `dead-deliveries retry`."""

from __future__ import annotations

from typing import Any

from click import UsageError

from ..server.store.ports import Backend, DeadDelivery, Outbox
from .dead_items import Dead, commands_for
from .tables import time_text


def _outbox(backend: Backend) -> Outbox:
    if backend.outbox is None:
        raise UsageError('This backend stores no push notifications, so it has no dead deliveries.')
    return backend.outbox


def _delivery_values(delivery: DeadDelivery) -> dict[str, Any]:
    return {
        'deliveryId': delivery.id,
        'taskId': delivery.task_id,
        'configId': delivery.config_id,
        'owner': delivery.owner,
        'event': delivery.n,
        'state': delivery.state,
        'diedAt': time_text(delivery.at),
        'tries': delivery.failures,
        'error': delivery.error,
    }


async def _retry_delivery(backend: Backend, delivery_id: str, *, again: bool) -> dict[str, str]:
    await _outbox(backend).retry(delivery_id)
    return {'deliveryId': delivery_id}


dead_deliveries = commands_for(
    Dead[DeadDelivery](
        noun='delivery',
        columns=('delivery', 'task', 'configuration', 'owner', 'event', 'state', 'died', 'tries', 'error'),
        pages=lambda backend: _outbox(backend).dead,
        values=_delivery_values,
        retry=_retry_delivery,
    ),
    name='dead-deliveries',
    summary='List or retry failed push notifications.',
    list_help='List the dead deliveries, oldest failure first.',
    retry_help='Retry dead deliveries, with the same ids.\n\nServers and workers of the store send them.',
)
