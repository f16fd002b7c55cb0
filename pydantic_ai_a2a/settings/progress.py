"""Progress of runs that watching clients see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..arguments import checked


@checked
@dataclass(frozen=True, kw_only=True)
class Progress:
    """Progress of a run that watching clients see besides the answer, as status updates."""

    notes: bool = False
    """True sends the text that the model writes beside a tool call to all watching clients and webhooks. Default False:
    only clients that ask for live text get it. The history of the task has the text in any case."""
    thinking: bool = False
    """True sends the model's thoughts, each as a whole, without signatures. Default False."""
    tools: bool = False
    """True sends tool calls, and the end of each call without its result. Arguments of tools in `hide_arguments` are
    left out. Default False."""
    partial_data: bool | Literal['with-functions'] = False
    """True sends the structured output while the model writes the output: data that validates as partial output, at
    most once in `Results.interval`. Each part replaces the part before, and the answer replaces the last. `to_a2a`
    then refuses an agent with output functions or output validators. `'with-functions'` allows them: they also run on
    each partial output, with `ctx.partial_output` True. Default False."""
