"""Makes `agent.to_a2a(...)` work on every Pydantic AI agent, as it did in Pydantic AI 1."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

from pydantic_ai.agent import AbstractAgent


def attach() -> None:
    """Give `AbstractAgent` the method `to_a2a`, unless it has one already. A method of a subclass goes before."""
    if not hasattr(AbstractAgent, 'to_a2a'):
        AbstractAgent.to_a2a = _Method()  # pyright: ignore[reportAttributeAccessIssue]


class _Method:
    """`to_a2a` as a method of agents. The first use loads the server, which many importing programs never make."""

    def __get__(self, agent: AbstractAgent[Any, Any] | None, kind: type) -> Callable[..., Any]:
        from .build import to_a2a  # noqa: PLC0415 - not at the import of the package

        return to_a2a if agent is None else MethodType(to_a2a, agent)
