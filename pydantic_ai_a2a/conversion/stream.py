"""What a run's events mean to a client who watches: the answer's text, and notes on the way. Observes one run; pure.

Which of the texts a model writes is the answer is known only when its response has ended: text beside a tool call was a
note. So each response's text starts the answer anew, and the text of a response with tool calls is a note as well.
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

from ..types import Note, TextDelta

__all__ = ('AnswerStream',)


class AnswerStream:
    """The answer of one run while the model writes it.

    Args:
        text_output: Whether text of the model can be the run's output; without, there are notes only.
    """

    def __init__(self, text_output: bool) -> None:
        self._text_output = text_output
        self._chunks: list[str] = []
        self._anew = True

    def feed(self, event: AgentStreamEvent) -> TextDelta | None:
        """What an event adds to the answer; None for all that is no text of it."""
        if not self._text_output:
            return None
        if isinstance(event, PartDeltaEvent):
            return self._add(event.delta.content_delta) if isinstance(event.delta, TextPartDelta) else None
        return self._start(event) if isinstance(event, PartStartEvent) else None

    def end_response(self, response: ModelResponse) -> Note | None:
        """Close a complete response, streamed or not: its text was a note if it calls tools, output tools included."""
        self._anew = True
        if not response.tool_calls or not (text := response.text) or text.isspace():
            return None
        return Note(text)

    @property
    def streamed(self) -> str | None:
        """What a client has by now as the answer: the deltas from the last `first` on; None if there were none."""
        return ''.join(self._chunks) if self._chunks else None

    def _start(self, event: PartStartEvent) -> TextDelta | None:
        if isinstance(event.part, TextPart):
            return self._add(event.part.content)
        if isinstance(event.part, NativeToolCallPart):
            # Pydantic AI's output is the text after the last one of these, where there is any.
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
