"""A remote A2A agent as a Pydantic AI agent."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Self

from pydantic_ai import Agent
from pydantic_ai.agent import AbstractAgent, WrapperAgent
from pydantic_ai.output import OutputSpec
from pydantic_ai.tools import RunContext, ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
from pydantic_core import SchemaValidator, core_schema
from typing_extensions import TypeVar

from ...arguments import checked
from ..client import A2AClient
from ..http_connections import Auth
from ..targets import Target
from ..trusted_keys import TrustedKeys
from .local_tools import APPROVAL, QUESTION
from .model import A2AModel

OutputT = TypeVar('OutputT', default=str)

_ANY = SchemaValidator(core_schema.dict_schema())
_TOOLS = (
    ToolDefinition(
        name=APPROVAL, description='A call of the remote agent that waits for an approval.', kind='unapproved'
    ),
    ToolDefinition(name=QUESTION, description='A question of the remote agent.', kind='external'),
)


@checked
class RemoteAgent(WrapperAgent[object, OutputT]):
    """A remote A2A agent with the methods of a Pydantic AI agent.

    `message_history` continues a conversation. With `DeferredToolRequests` among the output types, a remote task that
    waits is the output: the pending calls are calls of `remote_approval` and `remote_question`, and the next run gets
    the answers as `deferred_tool_results`. A question without a call is the output, and the next prompt is the answer.

    Each run opens and closes connections. `async with` keeps connections open for several runs. A run
    raises `ModelAPIError` if the remote agent refuses, fails or does not answer; the cause is the error of the client.

    Args:
        target: The agent: its URL, the URL of its card, its card, an app or agent in this process, or an `A2AClient`.
        output_type: Type of the output, as in `Agent`. Default: text.
        name: Name of the agent, in traces and as the model's name. Default: the name of an agent in this process, else
            `remote-agent`.
        headers: Headers of every request, as in `A2AClient`. Default: none.
        auth: Authentication of every request, as in `A2AClient`. Default: none.
        timeout: Seconds of silence, as in `A2AClient`. Default 30.
        card_keys: Keys of which one must have signed the card. Default: signatures are not verified.

    Raises:
        TypeError: The target is none of these, or is an `A2AClient`, which has these options itself.
    """

    def __init__(
        self,
        target: Target | A2AClient,
        output_type: OutputSpec[OutputT] = str,
        *,
        name: str | None = None,
        headers: Mapping[str, str] | None = None,
        auth: Auth | None = None,
        timeout: float | timedelta | None = None,
        card_keys: TrustedKeys | None = None,
    ) -> None:
        options: dict[str, Any] = {'headers': headers, 'auth': auth, 'timeout': timeout, 'card_keys': card_keys}
        given = {option: value for option, value in options.items() if value is not None}
        if isinstance(target, A2AClient) and given:
            option = next(iter(given))
            raise TypeError(f'RemoteAgent takes {option} for a target that is no A2AClient: give the client {option}.')
        client = target if isinstance(target, A2AClient) else A2AClient(target, **given)
        name = name or (target.name if isinstance(target, AbstractAgent) else None)
        model = A2AModel(client, model_name=name or 'remote-agent')
        calls = _RemoteCalls(client)
        super().__init__(Agent(model, output_type=output_type, name=name, deps_type=object, toolsets=[calls]))


class _RemoteCalls(AbstractToolset[object]):
    """The tools whose calls are the pending calls of a remote task. No tool is called without an answer.

    The toolset opens the client for each run.
    """

    def __init__(self, client: A2AClient) -> None:
        self._client = client

    @property
    def id(self) -> str:
        return 'remote-calls'

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(self, *args: Any) -> None:
        await self._client.__aexit__(None, None, None)

    async def get_tools(self, ctx: RunContext[object]) -> dict[str, ToolsetTool[object]]:
        return {
            tool.name: ToolsetTool(toolset=self, tool_def=tool, max_retries=0, args_validator=_ANY) for tool in _TOOLS
        }

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[object], tool: ToolsetTool[object]
    ) -> Any:
        """Return the approved arguments of a remote call."""
        return {'args': tool_args.get('args')}
