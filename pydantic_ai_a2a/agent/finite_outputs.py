"""A new request to the model if an output holds NaN or infinity, or does not fit the schema of a client."""

from __future__ import annotations

from typing import Any, cast

from pydantic_ai import ModelRetry, RunContext
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.output import OutputContext

from ..conversion.client_schema import ClientOutput
from ..conversion.json_schema import problem
from ..conversion.outbound import OutputMapper

__all__ = ('FiniteOutputs', 'FittingOutputs')


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


class FittingOutputs(FiniteOutputs):
    """Makes an output outside the schema of the client a failed validation, too.

    Args:
        output: The output by the schema.
    """

    def __init__(self, output: ClientOutput) -> None:
        super().__init__(output.outputs)
        self._schema = output.schema

    async def after_output_process(self, ctx: RunContext[Any], *, output_context: OutputContext, output: Any) -> Any:
        """Return the output.

        Raises:
            ModelRetry: The output holds NaN or infinity, or does not fit the schema.
        """
        # The states of a task, such as `InputRequired`, are no data.
        if isinstance(output, dict) and not ctx.partial_output:
            fault = problem(cast('dict[str, Any]', output), self._schema, 'output')
            if fault is not None:
                raise ModelRetry(' '.join(fault))
        return await super().after_output_process(ctx, output_context=output_context, output=output)
