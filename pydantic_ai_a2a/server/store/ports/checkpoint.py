"""The progress of a run, for the next holder of its task."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic_ai.messages import ModelMessage
from pydantic_ai.usage import RunUsage

from ....types.frozen_values import frozen


@frozen
class Checkpoint:
    """The progress of a run, for the next holder of the task."""

    run: str
    """Id of the run, the same in all attempts."""
    messages: Sequence[ModelMessage]
    """The model messages of the run, over all attempts, without the earlier messages of the conversation."""
    usage: RunUsage
    """The run's usage over all attempts."""
    first: int = 0
    """In a write: number of the first stored message to replace by `messages`; earlier messages stay. In a read: 0."""
    taken: int = 0
    """Row of the newest client message in `messages` that entered the running run; 0 if no message did."""
