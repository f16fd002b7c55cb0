"""Whether a capability has compacted the conversation during a run."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic_ai.messages import CompactionPart, ModelMessage, ModelResponse


def is_compacted(whole: Sequence[ModelMessage], history: Sequence[ModelMessage], new: Sequence[ModelMessage]) -> bool:
    """Return whether a capability has put a `CompactionPart` in the place of messages during a run.

    Args:
        whole: The messages at the end of the run.
        history: The messages before the run.
        new: The messages of the run. A compaction in a response is the provider's, and replaces no message here.
    """
    if not (found := _compactions(whole)):
        return False
    known = _compactions([*history, *(message for message in new if isinstance(message, ModelResponse))])
    return found != known or _count_parts(whole) < _count_parts([*history, *new])


def _compactions(messages: Sequence[ModelMessage]) -> list[CompactionPart]:
    return [part for message in messages for part in message.parts if part.part_kind == 'compaction']


def _count_parts(messages: Sequence[ModelMessage]) -> int:
    return sum(len(message.parts) for message in messages)
