"""Makes `agent.to_a2a(...)` work on every Pydantic AI agent, as it did in Pydantic AI 1."""

from __future__ import annotations

from pydantic_ai.agent import AbstractAgent

from .build import to_a2a

__all__ = ('attach',)


def attach() -> None:
    """Give `AbstractAgent` the method `to_a2a`, unless it has one already. A method of a subclass goes before."""
    if not hasattr(AbstractAgent, 'to_a2a'):
        AbstractAgent.to_a2a = to_a2a  # pyright: ignore[reportAttributeAccessIssue]
