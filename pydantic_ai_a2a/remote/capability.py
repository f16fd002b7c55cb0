"""A remote agent as a capability of an agent."""

from __future__ import annotations

from typing import Any

from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelRequest, ToolReturnPart
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.tools import AgentDepsT, RunContext
from pydantic_ai.toolsets import AbstractToolset
from typing_extensions import Unpack

from ..client.agent_finder import Target
from .events import A2ATaskEvent
from .toolset import A2AToolset, ToolsetOptions

__all__ = ('A2A',)


class A2A(AbstractCapability[AgentDepsT]):
    """A remote A2A agent that an agent can ask.

    ```python
    from pydantic_ai import Agent

    from pydantic_ai_a2a import A2A

    agent = Agent('test', capabilities=[A2A('https://weather.example.com')])
    ```

    Deny a call that waits for the remote agent with `remote_results`. If a call is denied in another way, this
    capability cancels the remote task before the next request to the model, in the process that has started the task.

    Args:
        target: The agent: its URL, the URL of its card, its card, or an ASGI app or Pydantic AI agent in this process.
        tool_prefix: Prefix of the tools' names, as in `weather_forecast`. Default: none.
        options: The options of `A2AToolset`.
    """

    def __init__(
        self, target: Target, *, tool_prefix: str | None = None, **options: Unpack[ToolsetOptions[AgentDepsT]]
    ) -> None:
        self._toolset = A2AToolset[AgentDepsT](target, **options).emitting(A2ATaskEvent)
        self._prefix = tool_prefix

    @classmethod
    def get_serialization_name(cls) -> str | None:
        """Return no name: the target may be an object of this process."""
        return None

    def get_toolset(self) -> AbstractToolset[AgentDepsT]:
        """Return the tools of the agent."""
        return self._toolset if self._prefix is None else self._toolset.prefixed(self._prefix)

    async def before_model_request(
        self, ctx: RunContext[AgentDepsT], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Cancel remote tasks of calls that were denied."""
        last: Any = ctx.messages[-1]
        for part in last.parts if isinstance(last, ModelRequest) else ():
            if isinstance(part, ToolReturnPart) and part.outcome == 'denied':
                await self._toolset.forget(ctx, part.tool_call_id)
        return request_context
