"""Names for an agent without a name, from the user's variable or module, and the refusal to store tasks under them."""

from __future__ import annotations

from inspect import currentframe
from pathlib import Path
from traceback import walk_stack
from typing import Any

from pydantic_ai.agent import AbstractAgent

from ...errors import AgentUnnamed
from ..store.ports import Backend

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


def check_namespace(namespace: str | None, card_name: str, backend: object) -> None:
    """Refuse to derive the name of stored tasks from a variable or a module, which a refactoring changes.

    Args:
        namespace: The name that the user has given to the agent, the app or the stored tasks, if any.
        card_name: The name on the card.
        backend: The backend; a `Backend` has its own namespace, and the tasks in memory end with the process.

    Raises:
        AgentUnnamed: There is no such name.
    """
    if not namespace and backend != 'memory' and not isinstance(backend, Backend):
        raise AgentUnnamed(
            'The agent has no name, under which its tasks would be stored: write'
            f' Agent(…, name={card_name!r}), to_a2a(name={card_name!r}) or Retention(namespace={card_name!r}).'
            " Tasks that were stored without a name are under 'agent', and Retention(namespace='agent') keeps them."
        )
