"""Checks of the options of an agent that would fail every run, or do harm in every run."""

from __future__ import annotations

from typing import Any

from pydantic_ai.agent import AbstractAgent, WrapperAgent

from ...time_spans import seconds
from .pydantic_ai_internals import has_output_validators
from .run_options import RunOptions

_REFUSED = {'DBOSAgent': 'cancellation', 'PrefectAgent': 'cancellation', 'TemporalAgent': 'timeout='}
"""Wrappers for durable execution, and the option refused in every run, inside a workflow or not."""


def check_options(agent: AbstractAgent[Any, Any], options: RunOptions) -> None:
    """Refuse options that would fail every run of the agent.

    Raises:
        TypeError: An option is unknown, or belongs to a request; the agent has output validators and the options have
            an output type; the class of the agent overrides `run`; or the agent is a deprecated wrapper for durable
            execution, for which runs are refused.
        ValueError: The timeout is not positive.
    """
    if unknown := options.keys() - RunOptions.__annotations__.keys():
        raise TypeError(
            f'to_a2a() takes no {", ".join(sorted(unknown))}: this is not an option that applies to every run.'
        )
    timeout = options.get('timeout')
    if timeout is not None and seconds(timeout) <= 0:
        raise ValueError(f'timeout must be positive, not {timeout!r}.')
    kind = next(kind for kind in type(agent).__mro__ if 'run' in vars(kind))
    if not kind.__module__.startswith(('pydantic_ai.', 'pydantic_ai_a2a.')):
        raise TypeError(
            f'{kind.__name__} overrides run(), which to_a2a() does not call: tasks are runs of iter(). Override iter(),'
            ' or give the agent a capability with wrap_run().'
        )
    while isinstance(agent, WrapperAgent):
        for kind in type(agent).__mro__:  # by name: the class cannot be imported without its engine
            durable = kind.__module__.startswith('pydantic_ai.durable_exec.')
            refused = _REFUSED.get(kind.__name__) if durable else None
            if refused == 'cancellation' or (refused is not None and timeout is not None):
                instead = kind.__name__.replace('Agent', 'Durability')
                raise TypeError(
                    f'{kind.__name__} takes no {refused}: give to_a2a() the wrapped agent, '
                    f'or an agent with the capability {instead}.'
                )
        agent = agent.wrapped
    if options.get('output_type') is not None and has_output_validators(agent):  # the agent may get validators later
        raise TypeError(
            'output_type= cannot be combined with output validators of the agent: set output_type= on the agent itself.'
        )
