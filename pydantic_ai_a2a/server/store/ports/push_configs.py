"""The port for the push notification configurations of tasks: their webhooks.

Storage keeps the address of a webhook as opaque bytes, which may be encrypted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import field
from typing import Literal

from ....types.frozen_values import frozen

Takes = Literal['statuses', 'artifacts', 'chunks']
"""The delivered events: status updates; status updates and whole artifacts; or every stored event."""


@frozen
class PushConfig:
    """A webhook of a task."""

    id: str
    """Id of the webhook, unique in the task."""
    version: str
    """Name of the codec of the registration, which also writes the notifications."""
    takes: Takes
    body: bytes = field(repr=False)
    """Address and credentials of the webhook; a secret."""


class PushConfigs(ABC):
    """The push notification configurations of tasks (§3.1.7 to §3.1.10), deleted with the task.

    Every method raises TaskNotFoundError if the owner has no such task.
    """

    @abstractmethod
    async def create(self, task_id: str, owner: str, config: PushConfig, *, limit: int) -> None:
        """Add a configuration for later events, or replace the configuration with the same id.

        Raises:
            InvalidParamsError: The task has `limit` other configurations already.
        """

    @abstractmethod
    async def get(self, task_id: str, owner: str, config_id: str | None) -> PushConfig:
        """Return a configuration; the oldest for None.

        Raises:
            TaskNotFoundError: The owner has no such task, or the task no such configuration.
        """

    @abstractmethod
    async def list(self, task_id: str, owner: str) -> Sequence[PushConfig]:
        """Return all configurations of a task, the oldest first."""

    @abstractmethod
    async def delete(self, task_id: str, owner: str, config_id: str) -> None:
        """Delete a configuration with all pending deliveries; do nothing without such a configuration."""
