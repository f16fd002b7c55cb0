"""A new request to the model if an output holds NaN or infinity, for which JSON has no number."""

from __future__ import annotations

from typing import Any

from pydantic_ai import ModelRetry, RunContext
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.output import OutputContext

from ..conversion.outbound import OutputMapper

__all__ = ('FiniteOutputs',)


class FiniteOutputs(AbstractCapability[Any]):
    """Makes NaN and infinity in an output a failed validation, within the output retries of the agent.

    Args:
        outputs: Converts the outputs.
    """

    def __init__(self, outputs: OutputMapper) -> None:
        self._outputs = outputs

    def get_ordering(self) -> CapabilityOrdering:
        """Return the last position after an output is processed, since other capabilities may replace numbers."""
        return CapabilityOrdering(position='outermost')

    async def after_output_process(self, ctx: RunContext[Any], *, output_context: OutputContext, output: Any) -> Any:
        """Return the output.

        Raises:
            ModelRetry: The output holds NaN or infinity.
        """
        problem = self._outputs.not_finite(output)
        if problem is not None:
            raise ModelRetry(problem)
        return output
