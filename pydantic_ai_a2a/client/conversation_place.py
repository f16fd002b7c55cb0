"""The place of a conversation: the agent that knows the ids of its contexts and tasks."""

from __future__ import annotations

from typing import NamedTuple


class Place(NamedTuple):
    """The agent to which a conversation belongs. No other agent gets the ids of its contexts and tasks.

    Each agent chooses the name on its card, so only an agent in this process, which has no origin, is told by its name.
    """

    url: str
    """Origin and path of the interface."""
    tenant: str
    name: str = ''
    """Name of an agent in this process."""
