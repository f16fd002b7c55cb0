"""The agent's connections to MCP servers, which last while the agent is entered.

A server that restarts leaves a dead connection behind. Pydantic AI counts who has entered a toolset, and connects anew
only after the last one has left.

Each server gets a ping before each run: nothing else tells that the process of a server has died. An error, and a tool
that fails in a run, put the connections in doubt. Then the host of the agent looks whether a server is lost, and if so,
enters the agent anew. No run begins meanwhile.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pydantic_ai import CancellationToken
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.messages import ModelMessage, ToolReturnPart

from ...errors import AgentUnavailable

if TYPE_CHECKING:
    from pydantic_ai.mcp import MCPToolset

_ANSWER_TIME = 5.0
"""Seconds in which a living MCP server names its tools."""
_PING_TIME = 1.0
"""Seconds after which a run begins although a server has not answered: it may be busy with the calls of other runs."""
_NO_PING = -32601
"""Code of the error of a server without ping: newer versions of MCP have none."""
_PAUSE = 0.05
"""Seconds between two looks at the runs, or at the state of the connections."""


class HasMessages(Protocol):
    """The end of a run."""

    @property
    def messages(self) -> Sequence[ModelMessage]:
        """The new messages of the run."""
        ...


EndT = TypeVar('EndT', bound=HasMessages)


class MCPConnections:
    """Counts the runs of one agent, and finds MCP servers that are gone."""

    def __init__(self, agent: AbstractAgent[Any, Any]) -> None:
        self._agent = agent
        self.on_doubt: Callable[[], object] = lambda: None
        """Called if an MCP server may have failed."""
        self.in_doubt = False
        """True until the host of the agent has looked whether a server is lost."""
        self.renewing = False
        """True from the loss of a connection until the agent is entered anew."""
        self.kept = False
        """True if the agent, once entered, keeps connections."""
        self._runs = 0

    def entered(self) -> None:
        """Note that the agent was entered: `agent.override` may have added toolsets until then."""
        self.kept = bool(self._toolsets())

    async def counted(self, run: Callable[[], Awaitable[EndT]], token: CancellationToken, *, in_workflow: bool) -> EndT:
        """Run the agent, and ask for a look at the connections if a tool, or the run, has failed.

        Args:
            run: Runs the agent. Raises `RunCancelled` at once if the token is cancelled.
            token: Cancels the run, which then waits no longer.
            in_workflow: True in a workflow of an engine, which must do the same in each replay, and so does not wait.
        """
        if not in_workflow:
            await self._settle(token)
            while self.renewing and not token.cancelled:  # noqa: ASYNC110 - as in `idle`
                await asyncio.sleep(_PAUSE)
        self._runs += 1
        doubt = True
        try:
            output = await run()
            parts = (part for message in output.messages for part in message.parts)
            # The model may have found an answer nevertheless.
            doubt = any(isinstance(part, ToolReturnPart) and part.outcome in ('failed', 'retried') for part in parts)
        finally:
            self._runs -= 1
            if doubt:
                self.on_doubt()
        return output

    async def check(self) -> None:
        """Check that a run may begin now.

        Raises:
            AgentUnavailable: The agent is being entered anew.
        """
        await self._settle(CancellationToken())
        if self.renewing:
            raise AgentUnavailable

    async def _settle(self, token: CancellationToken) -> None:
        """Ping the servers, and wait while the host looks whether one is lost, at most until the token is cancelled."""
        if not self.in_doubt and not self.renewing:
            answered = await asyncio.gather(*map(_answers, self._running()))
            if not all(answered):
                self.on_doubt()
        while self.in_doubt and not token.cancelled:  # noqa: ASYNC110 - as in `idle`
            await asyncio.sleep(_PAUSE)

    async def lost(self) -> str | None:
        """Return the name of a toolset whose MCP server does not answer; None if all answer."""
        for toolset in self._running():
            try:
                async with asyncio.timeout(_ANSWER_TIME):
                    await toolset.client.list_tools()
            except Exception:  # of the transport, of the protocol, or none in time
                return toolset.label
        return None

    def _running(self) -> list[MCPToolset[Any]]:
        return [toolset for toolset in self._toolsets() if toolset.is_running]

    def _toolsets(self) -> list[MCPToolset[Any]]:
        """Return the toolsets of MCP servers. Some connect for each run, and are never entered before."""
        kind: Any = getattr(sys.modules.get('pydantic_ai.mcp'), 'MCPToolset', ())  # else the agent cannot have one
        leaves = list[Any]()
        for toolset in self._agent.toolsets:
            toolset.apply(leaves.append)
        return [leaf for leaf in leaves if isinstance(leaf, kind)]

    async def idle(self, seconds: float) -> None:
        """Wait until no run holds the agent, in any event loop, at most some seconds."""
        end = time.monotonic() + seconds
        while self._runs and time.monotonic() < end:  # noqa: ASYNC110 - other event loops have runs too
            await asyncio.sleep(_PAUSE)


async def _answers(toolset: MCPToolset[Any]) -> bool:
    """Return False if the ping of a server ends with an error of the connection."""
    try:
        async with asyncio.timeout(_PING_TIME):
            await toolset.client.ping()
    except TimeoutError:
        return True
    except Exception as error:  # of the transport or of the protocol
        return getattr(getattr(error, 'error', None), 'code', None) == _NO_PING
    return True
