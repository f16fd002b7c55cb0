"""Partial outputs: the structured output of a response, validated while the model writes the response.

The functions of the agent for outputs would run on each partial output, so `to_a2a` refuses an agent with
such functions unless `Progress.partial_data` allows the calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

from pydantic_ai.agent import AbstractAgent
from pydantic_ai.messages import AgentStreamEvent, FinalResultEvent, PartDeltaEvent
from pydantic_ai.result import AgentStream
from pydantic_ai.run import AgentRun

from ..conversion.output_types import has_output_functions
from .agent_inspection import unwrapped_agent
from .pydantic_ai_internals import has_output_validators, validates_output
from .run_options import RunOptions
from .system_exits import contained

Observe = Callable[[AgentStreamEvent], Awaitable[None]]


class PartialOutputs:
    """The partial outputs of a run, for clients that watch the run.

    Args:
        show: Takes a partial output.
        interval: Seconds between two validations, each of which reads the whole output so far.
        with_validators: True to call the output validators of the agent, too.
    """

    def __init__(
        self, show: Callable[[Any], Awaitable[None]], interval: float, *, with_validators: bool = False
    ) -> None:
        self._show = show
        self._interval = interval
        self._with_validators = with_validators

    def of(self, run: AgentRun[Any, Any], events: object) -> Observe | None:
        """Return a function for each event of a model request; None for other events."""
        # The agent may have got validators after the check of `to_a2a`.
        if not isinstance(events, AgentStream) or (validates_output(run) and not self._with_validators):
            return None
        return _ResponseOutputs(cast('AgentStream[Any, Any]', events), self._show, self._interval).observe


def check_partial_data(agent: AbstractAgent[Any, Any], options: RunOptions) -> None:
    """Refuse partial data for an agent whose functions would run on each partial output.

    Raises:
        TypeError: The agent has output functions or output validators.
    """
    output_type = options.get('output_type') or agent.output_type
    if has_output_functions(output_type) or has_output_validators(unwrapped_agent(agent)):
        raise TypeError(
            'Progress.partial_data cannot be combined with output functions or output validators of the agent, which'
            " would run on each partial output. Progress.partial_data='with-functions' allows that."
        )


class _ResponseOutputs:
    """The partial outputs of one response."""

    def __init__(self, stream: AgentStream[Any, Any], show: Callable[[Any], Awaitable[None]], interval: float) -> None:
        self._stream = stream
        self._show = show
        self._interval = interval
        self._has_begun = False
        self._due = 0.0

    async def observe(self, event: AgentStreamEvent) -> None:
        """Show the output after an event, if the output has changed and is due."""
        if isinstance(event, FinalResultEvent):
            self._has_begun = True
        elif not self._has_begun or not isinstance(event, PartDeltaEvent):
            return
        now = asyncio.get_running_loop().time()
        if now < self._due:
            return
        self._due = now + self._interval
        try:
            output = await contained(self._stream.validate_response_output(self._stream.response, allow_partial=True))
        except Exception:
            return  # also an error of an output function: the run calls the function again, with the whole output
        await self._show(output)
