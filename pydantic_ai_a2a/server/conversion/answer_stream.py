"""A run's events as the answer's text and notes, for watching clients.

Only the end of a model response tells if its text is the answer: text beside a tool call is a note. So the text of each
response starts the answer anew, and the text of a response with tool calls is sent as a note, too.
"""

from __future__ import annotations

from pydantic_ai.messages import (
    AgentStreamEvent,
    ModelResponse,
    NativeToolCallPart,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
)

from ...types.run_events import Note, TextDelta
from ...wire.extensions.remote_calls import SYSTEM


class AnswerStream:
    """The answer of one run while the model writes it.

    Args:
        text_output: True if text of the model can be the run's output; otherwise there are only notes.
    """

    def __init__(self, text_output: bool) -> None:
        self._text_output = text_output
        self._chunks: list[str] = []
        self._anew = True

    def feed(self, event: AgentStreamEvent) -> TextDelta | None:
        """Return the text that an event adds to the answer; None if it adds no text."""
        if not self._text_output:
            return None
        if isinstance(event, PartDeltaEvent):
            return self._add(event.delta.content_delta) if isinstance(event.delta, TextPartDelta) else None
        return self._start(event) if isinstance(event, PartStartEvent) else None

    def begin_response(self) -> None:
        """Begin a response, perhaps another try at one that a hook has refused: its text is the answer anew."""
        self._anew = True

    def end_response(self, response: ModelResponse) -> Note | None:
        """End a complete response, streamed or not. Its text was a note if it calls tools, output tools included."""
        self._anew = True
        if not response.tool_calls or not (text := response.text) or text.isspace():
            return None
        return Note(text, of_model=True)

    @property
    def streamed(self) -> str | None:
        """The text that readers of live text have as the answer: deltas since the last `first`; None without deltas."""
        return ''.join(self._chunks) if self._chunks else None

    def _start(self, event: PartStartEvent) -> TextDelta | None:
        if isinstance(event.part, TextPart):
            is_question = event.part.provider_name == SYSTEM and event.part.provider_details is not None
            return None if is_question else self._add(event.part.content)
        if isinstance(event.part, NativeToolCallPart):
            # Pydantic AI's output is only the text after the last native tool call, if the response has such a call.
            self._anew = True
        return None

    def _add(self, text: str) -> TextDelta | None:
        if not text:
            return None
        first, self._anew = self._anew, False
        if first:
            self._chunks.clear()
        self._chunks.append(text)
        return TextDelta(text, first)
