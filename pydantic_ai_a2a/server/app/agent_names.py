"""Names for an agent without a name, from the user's variable or module."""

from __future__ import annotations

from inspect import currentframe
from pathlib import Path
from traceback import walk_stack
from typing import Any

from pydantic_ai.agent import AbstractAgent

_GENERIC = frozenset({'__init__', '__main__', 'agent', 'app', 'main', 'self', 'server'})
"""Names of variables and modules that say nothing of an agent."""


def telling_name(*names: str) -> str:
    """Return the first of the names of an agent's variable and module that says something of the agent."""
    return next((name for name in names if name not in _GENERIC), 'agent')


def inferred_name(agent: AbstractAgent[Any, Any]) -> str:
    """Return the name of the user's variable with the agent, as Pydantic AI does, or else of the user's module."""
    own = __name__.partition('.')[0]
    frames = (frame for frame, _ in walk_stack(currentframe()))
    users = (frame for frame in frames if str(frame.f_globals.get('__name__')).partition('.')[0] != own)
    nothing: dict[str, Any] = {}
    local, module = next(((frame.f_locals, frame.f_globals) for frame in users), (nothing, nothing))
    variables = [name for names in (local, module) for name in names if names[name] is agent]
    path, file = str(module.get('__name__')), Path(module.get('__file__') or '__main__')
    return telling_name(*variables, *reversed(path.split('.')), file.stem)
