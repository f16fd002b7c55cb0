"""Webhooks of tasks: the target that a client names, and the registered configuration."""

from __future__ import annotations

from dataclasses import field
from typing import NamedTuple

from .frozen_values import frozen


@frozen
class PushTarget:
    """A webhook of a task: URL, token and credentials (§4.3.1)."""

    id: str
    """Name of the configuration, unique in its task; empty if the server is to choose."""
    url: str = field(repr=False)
    token: str | None = field(default=None, repr=False)
    """Token by which the receiver recognises the sender."""
    scheme: str | None = None
    """HTTP authentication scheme of the credentials, such as `Bearer`."""
    credentials: str | None = field(default=None, repr=False)


class Registered(NamedTuple):
    """A push notification configuration of a task, for an answer."""

    task_id: str
    target: PushTarget
