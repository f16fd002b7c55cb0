"""The operations of A2A 1.0, as one table that every binding reads. Knows neither params nor who may call what."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from ..errors import A2AError, PushNotificationNotSupportedError, UnsupportedOperationError

__all__ = ('OPERATIONS', 'REFUSALS', 'Capability', 'Operation', 'refuse_unsupported')

Capability = Literal['streaming', 'pushNotifications', 'extendedAgentCard']
"""A capability of the agent card that operations depend on, by its name there (§4.4.3)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation of the protocol (§3.1)."""

    name: str
    """Its method name in A2A 1.0."""
    service: str
    """The name of the service's method that performs it; empty where no task is concerned."""
    http: tuple[tuple[str, str], ...]
    """Verbs and paths of the HTTP+JSON binding, relative to the interface's URL (§11.3)."""
    stream: bool = False
    """Whether it answers with a stream of events."""
    capability: Capability | None = None
    """What the agent card must declare for it to be served (§3.3.4)."""


_CONFIGS = '/tasks/{id}/pushNotificationConfigs'
_CONFIG = f'{_CONFIGS}/{{configId}}'

_ALL = (
    Operation(name='SendMessage', service='send_message', http=(('POST', '/message:send'),)),
    Operation(
        name='SendStreamingMessage',
        service='stream_message',
        http=(('POST', '/message:stream'),),
        stream=True,
        capability='streaming',
    ),
    Operation(name='GetTask', service='get_task', http=(('GET', '/tasks/{id}'),)),
    Operation(name='ListTasks', service='list_tasks', http=(('GET', '/tasks'),)),
    Operation(name='CancelTask', service='cancel_task', http=(('POST', '/tasks/{id}:cancel'),)),
    Operation(
        name='SubscribeToTask',
        service='subscribe_to_task',
        # The specification's text says POST, its a2a.proto says GET.
        http=(('POST', '/tasks/{id}:subscribe'), ('GET', '/tasks/{id}:subscribe')),
        stream=True,
        capability='streaming',
    ),
    Operation(
        name='CreateTaskPushNotificationConfig',
        service='create_push_config',
        http=(('POST', _CONFIGS),),
        capability='pushNotifications',
    ),
    Operation(
        name='GetTaskPushNotificationConfig',
        service='get_push_config',
        http=(('GET', _CONFIG),),
        capability='pushNotifications',
    ),
    Operation(
        name='ListTaskPushNotificationConfigs',
        service='list_push_configs',
        http=(('GET', _CONFIGS),),
        capability='pushNotifications',
    ),
    Operation(
        name='DeleteTaskPushNotificationConfig',
        service='delete_push_config',
        http=(('DELETE', _CONFIG),),
        capability='pushNotifications',
    ),
    Operation(
        name='GetExtendedAgentCard',
        service='',
        http=(('GET', '/extendedAgentCard'),),
        capability='extendedAgentCard',
    ),
)

OPERATIONS: Mapping[str, Operation] = MappingProxyType({operation.name: operation for operation in _ALL})
"""Every operation of A2A 1.0, served or not, by its method name."""

REFUSALS: Mapping[Capability, tuple[type[A2AError], str | None]] = MappingProxyType(
    {
        'streaming': (UnsupportedOperationError, 'This agent does not stream; use SendMessage and GetTask.'),
        'pushNotifications': (PushNotificationNotSupportedError, None),
        'extendedAgentCard': (UnsupportedOperationError, 'This agent has no extended agent card.'),
    }
)
"""Errors of operations whose capability the agent does not have, in A2A 1.0, and their messages."""


def refuse_unsupported(
    operation: Operation,
    capabilities: Collection[str],
    refusals: Mapping[Capability, tuple[type[A2AError], str | None]] = REFUSALS,
) -> None:
    """Refuse an operation that needs a capability which the agent card does not declare (§3.3.4).

    Args:
        operation: The operation.
        capabilities: Names of the capabilities that the card declares as true.
        refusals: The errors that the version of the request has for this.

    Raises:
        A2AError: The error from `refusals`.
    """
    if operation.capability is not None and operation.capability not in capabilities:
        error, message = refusals[operation.capability]
        raise error(message)
