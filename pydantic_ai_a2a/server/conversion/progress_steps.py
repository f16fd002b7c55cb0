"""Thoughts and tool calls of a run, as steps for clients that may see them.

A thought is shown without its signature, a tool call without its result.
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

from ...settings.progress import Progress
from ...types.a2a_objects import Part
from ...types.run_events import Step
from ...wire.extensions.remote_calls import remote_tool
from ...wire.schemas.json_depth import MOST_LEVELS, deeper_than


class StepsShown:
    """The steps of one agent's runs that its clients may see.

    Args:
        progress: The kinds of steps.
        hidden: Names of the tools whose arguments are hidden from clients.
    """

    any: bool
    """True if any steps are shown."""
    of_tools: bool
    """True if tool calls are shown."""

    def __init__(self, progress: Progress, hidden: Collection[str] = ()) -> None:
        self.any = progress.thinking or progress.tools
        self.of_tools = progress.tools
        self._thinking = progress.thinking
        self._hidden = hidden

    def of_event(self, event: AgentStreamEvent) -> Step | None:
        """Return the step in an event of the model's stream or of the tools; None for other events."""
        if isinstance(event, PartEndEvent):
            return self._of_part(event.part)
        if self.of_tools and isinstance(event, FunctionToolCallEvent):
            return self._call(event.part)
        if self.of_tools and isinstance(event, FunctionToolResultEvent):
            return _return(event.part)
        return None

    def of_response(self, response: ModelResponse) -> Iterator[Step]:
        """Return the steps in a complete response that was not streamed."""
        return (step for part in response.parts if (step := self._of_part(part)) is not None)

    def _of_part(self, part: ModelResponsePart) -> Step | None:
        """Return a thought, or a step of a tool that the provider runs."""
        if isinstance(part, ThinkingPart):
            return _thought(part.content) if self._thinking else None
        if self.of_tools and isinstance(part, NativeToolCallPart):
            return self._call(part)
        if self.of_tools and isinstance(part, NativeToolReturnPart):
            return _return(part)
        return None

    def _call(self, part: BaseToolCallPart) -> Step:
        is_hidden = part.tool_name in self._hidden or remote_tool(part) in self._hidden
        args = {} if is_hidden else part.args_as_dict()
        if deeper_than(MOST_LEVELS, args):
            args = {}
        return Step(Part(data=args, media_type='application/json'), _tool('call', part))


def _thought(text: str) -> Step | None:
    """Return the step of a thought; None for hidden thoughts, which have only a signature."""
    return Step(Part(text=text, media_type='text/plain'), {'progress': 'thinking'}) if text.strip() else None


def _return(part: BaseToolReturnPart) -> Step:
    return Step(Part(data={'outcome': part.outcome}, media_type='application/json'), _tool('return', part))


def _tool(phase: str, part: BaseToolCallPart | BaseToolReturnPart) -> dict[str, str]:
    return {'progress': 'tool', 'phase': phase, 'toolName': part.tool_name, 'toolCallId': part.tool_call_id}
