"""What an agent thinks and does on the way, for clients that may see it. Observes one run; pure.

A thought is shown without its signature, a tool call without what the tool returned.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from pydantic_ai.messages import (
    AgentStreamEvent,
    BaseToolCallPart,
    BaseToolReturnPart,
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    ModelResponse,
    ModelResponsePart,
    NativeToolCallPart,
    NativeToolReturnPart,
    PartEndEvent,
    ThinkingPart,
)

from ..settings import Progress
from ..types import Part, Step

__all__ = ('StepsShown',)


class StepsShown:
    """The steps of one agent's runs that its clients may see.

    Args:
        progress: Which ones.
        hidden: Names of the tools whose arguments clients are not shown.
    """

    any: bool
    """Whether there are any."""
    of_tools: bool
    """Whether calls of tools are among them."""

    def __init__(self, progress: Progress, hidden: Collection[str] = ()) -> None:
        self.any = progress.thinking or progress.tools
        self.of_tools = progress.tools
        self._thinking = progress.thinking
        self._hidden = hidden

    def of_event(self, event: AgentStreamEvent) -> Step | None:
        """The step that an event is, of the model's stream or of the tools; None for all others."""
        if isinstance(event, PartEndEvent):
            return self._of_part(event.part)
        if self.of_tools and isinstance(event, FunctionToolCallEvent):
            return self._call(event.part)
        if self.of_tools and isinstance(event, FunctionToolResultEvent):
            return _return(event.part)
        return None

    def of_response(self, response: ModelResponse) -> Iterator[Step]:
        """The steps in a complete response, which was not streamed."""
        return (step for part in response.parts if (step := self._of_part(part)) is not None)

    def _of_part(self, part: ModelResponsePart) -> Step | None:
        """A thought, or a tool that the provider runs."""
        if isinstance(part, ThinkingPart):
            return _thought(part.content) if self._thinking else None
        if self.of_tools and isinstance(part, NativeToolCallPart):
            return self._call(part)
        if self.of_tools and isinstance(part, NativeToolReturnPart):
            return _return(part)
        return None

    def _call(self, part: BaseToolCallPart) -> Step:
        args = {} if part.tool_name in self._hidden else part.args_as_dict()
        return Step(Part(data=args, media_type='application/json'), _tool('call', part))


def _thought(text: str) -> Step | None:
    """Nothing for thoughts that the provider keeps to itself: they have only a signature."""
    return Step(Part(text=text, media_type='text/plain'), {'progress': 'thinking'}) if text.strip() else None


def _return(part: BaseToolReturnPart) -> Step:
    return Step(Part(data={'outcome': part.outcome}, media_type='application/json'), _tool('return', part))


def _tool(phase: str, part: BaseToolCallPart | BaseToolReturnPart) -> dict[str, str]:
    return {'progress': 'tool', 'phase': phase, 'toolName': part.tool_name, 'toolCallId': part.tool_call_id}
