"""The health of several agents in one server."""

from __future__ import annotations

import asyncio

from starlette.types import Receive, Scope, Send

from .catalogue import Agents
from .health import READY_PATH, answer_health


class ReadyTogether:
    """`/health/ready` of several agents: HTTP 200 if all agents are ready, else 503, with the health of each agent."""

    def __init__(self, agents: Agents) -> None:
        self._agents = agents

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer GET and HEAD."""
        paths = self._agents.paths
        answers = await asyncio.gather(*(self._agents.ask(scope, path, READY_PATH) for path in paths))
        ready = all(status == 200 for status, _ in answers)
        agents = {path: health for path, (_, health) in zip(paths, answers, strict=True)}
        await answer_health(scope, send, 200 if ready else 503, {'ready': ready, 'agents': agents})
