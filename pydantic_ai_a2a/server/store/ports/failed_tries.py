"""The tries of a run that an error of the model has ended."""

from __future__ import annotations

from pydantic_ai.usage import RunUsage

from ....types.frozen_values import frozen


@frozen
class Tried:
    """The tries of a run that an error of the model has ended."""

    number: int
    """Number of the tries since the last stored step of the run."""
    spent: float
    """Seconds of all tries of the run, with the pauses between them."""
    usage: RunUsage
    """The run's usage over all attempts and tries."""
