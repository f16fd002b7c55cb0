"""A remote agent as a capability of an agent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelRequest, ToolReturnPart
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.tools import AgentDepsT, RunContext
from pydantic_ai.toolsets import AbstractToolset
from typing_extensions import Unpack

from ...arguments import checked
from ..targets import Target
from .task_events import A2ATaskEvent
from .toolset import A2AToolset, ErrorBehavior, ToolsetOptions


@checked
@dataclass(init=False)
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
    @checked
    def from_spec(
        cls,
        target: str,
        *,
        tool_prefix: str | None = None,
        headers: dict[str, str] | None = None,
        auth: str | None = None,
        timeout: float = 30.0,
        trusted_origins: Sequence[str] = (),
        id: str | None = None,
        max_retries: int | None = None,
        tool_error_behavior: ErrorBehavior = 'failed',
        tools: Literal['agent', 'skills'] = 'agent',
        include_descriptions: bool = True,
        context: Literal['conversation', 'call'] = 'conversation',
    ) -> A2A[AgentDepsT]:
        """Make the capability by an agent file, which has the options that are text, numbers, lists or mappings."""
        return cls(
            target,
            tool_prefix=tool_prefix,
            headers=headers,
            auth=auth,
            timeout=timeout,
            trusted_origins=trusted_origins,
            id=id,
            max_retries=max_retries,
            tool_error_behavior=tool_error_behavior,
            tools=tools,
            include_descriptions=include_descriptions,
            context=context,
        )

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
