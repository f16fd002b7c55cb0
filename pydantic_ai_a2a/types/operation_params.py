"""The decoded params of each operation."""

from __future__ import annotations

from typing import Any

from .a2a_objects import Message, TaskState
from .frozen_values import frozen
from .webhook_targets import PushTarget


@frozen
class SendParams:
    """Decoded params of SendMessage and SendStreamingMessage (§3.1.1)."""

    message: Message
    return_immediately: bool = False
    history_length: int | None = None
    accepted_output_modes: tuple[str, ...] = ()
    push_config: PushTarget | None = None
    push_field: str = 'configuration.taskPushNotificationConfig'
    """The field of the params that holds `push_config`."""
    metadata: dict[str, Any] | None = None
    extensions: tuple[str, ...] = ()
    """Protocol extensions that the request activates (§4.6)."""
    also_ends: frozenset[TaskState] = frozenset()
    """States that end the stream besides those of A2A 1.0."""
    tenant: str = ''
    """The tenant that the request names (§8.3.2)."""


@frozen
class GetParams:
    """Decoded params of GetTask (§3.1.3)."""

    id: str
    history_length: int | None = None
    tenant: str = ''


@frozen
class ListParams:
    """Decoded params of ListTasks (§3.1.4)."""

    context_id: str | None = None
    state: TaskState | None = None
    since: int | None = None
    page_size: int = 50
    page_token: str | None = None
    history_length: int | None = None
    include_artifacts: bool = False
    tenant: str = ''


@frozen
class CancelParams:
    """Decoded params of CancelTask (§3.1.5)."""

    id: str
    metadata: dict[str, Any] | None = None
    tenant: str = ''


@frozen
class SubscribeParams:
    """Decoded params of SubscribeToTask (§3.1.6)."""

    id: str
    also_ends: frozenset[TaskState] = frozenset()
    """States that end the stream besides those of A2A 1.0."""
    ended_too: bool = False
    """True if an ended task is shown; A2A 1.0 refuses ended tasks."""
    last_event_id: int | None = None
    """Number of the client's last event; None for the task and all events from now on."""
    tenant: str = ''


@frozen
class CreatePushParams:
    """Decoded params of CreateTaskPushNotificationConfig (§3.1.7)."""

    task_id: str
    target: PushTarget
    field: str = ''
    """The field of the params that holds the target; empty if the params are the target."""
    tenant: str = ''


@frozen
class PushParams:
    """Decoded params of the operations on one push notification configuration (§3.1.8, §3.1.10)."""

    task_id: str
    id: str = ''
    """Id of the configuration; empty if a 0.3 request names none and accepts any."""
    tenant: str = ''


@frozen
class ListPushParams:
    """Decoded params of ListTaskPushNotificationConfigs (§3.1.9)."""

    task_id: str
    page_size: int | None = None
    page_token: str = ''
    tenant: str = ''


@frozen
class CardParams:
    """Decoded params of GetExtendedAgentCard (§3.1.11)."""

    tenant: str = ''
