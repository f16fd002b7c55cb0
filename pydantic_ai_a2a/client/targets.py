"""What users call an agent by: a URL, a card, or an app or agent of Pydantic AI in this process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias, cast

from pydantic_ai.agent import AbstractAgent
from starlette.types import ASGIApp

from ..types.a2a_objects import AgentCard

Target: TypeAlias = str | AgentCard | AbstractAgent[Any, Any] | ASGIApp
"""A remote agent: the URL of the agent or of its card, its card or the JSON of its card, or an app or agent in this
process."""


class _ServableAgent(Protocol):
    """Any Pydantic AI agent: the package gives its agents the method."""

    def __a2a_app__(self) -> ASGIApp:
        """Make the app that serves the agent."""
        ...


def local_app_of(target: Target) -> ASGIApp | None:
    """Return the app of a target in this process; None for an agent over a network."""
    if isinstance(target, AbstractAgent):
        return cast('_ServableAgent', target).__a2a_app__()
    return None if isinstance(target, (str, Mapping)) else target
