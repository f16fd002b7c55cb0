"""A new request to the model if an output holds NaN or infinity, or does not fit the schema of a client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from pydantic_ai import ModelRetry, RunContext
from pydantic_ai.capabilities import AbstractCapability, WrapperCapability
from pydantic_ai.output import OutputContext
from pydantic_ai.run import AgentRun

from ...wire.schemas.value_validation import problem
from ..conversion.output_mapper import OutputMapper
from .pydantic_ai_internals import wrap_all_hooks


def check_outputs(run: AgentRun[Any, Any], outputs: OutputMapper, schema: Mapping[str, Any] | None = None) -> None:
    """Make a wrong output of a run a failed validation, within the output retries of the agent.

    A capability of the run would have the same effect, but makes each run about a fifth more expensive.

    Args:
        run: The run, before its first step.
        outputs: Converts the outputs, which must not hold NaN or infinity.
        schema: The schema of the client, which the outputs must fit; None for the outputs of the agent.
    """
    wrap_all_hooks(run, lambda capability: _Checked(capability, outputs, schema))


class _Checked(WrapperCapability[Any]):
    """Calls the hooks of a run's capabilities, which may replace numbers, and then checks the output."""

    def __init__(
        self, wrapped: AbstractCapability[Any], outputs: OutputMapper, schema: Mapping[str, Any] | None
    ) -> None:
        super().__init__(wrapped)
        self._outputs = outputs
        self._schema = schema

    async def wrap_output_process(
        self, ctx: RunContext[Any], *, output_context: OutputContext, output: Any, handler: Any
    ) -> Any:
        processed: Any = await self.wrapped.wrap_output_process(
            ctx, output_context=output_context, output=output, handler=handler
        )
        # The states of a task, such as `InputRequired`, are no data.
        if self._schema is not None and isinstance(processed, dict) and not ctx.partial_output:
            misfit = problem(cast('dict[str, Any]', processed), self._schema, 'output')
            if misfit is not None:
                raise ModelRetry(' '.join(misfit))
        fault = self._outputs.not_finite(processed)
        if fault is not None:
            raise ModelRetry(fault)
        return cast('Any', processed)
