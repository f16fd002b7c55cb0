"""Makes `agent.to_a2a(...)` work on every Pydantic AI agent, as it did in Pydantic AI 1.

The client makes the app of an agent by the method `__a2a_app__`, which does the same under a name of its own: agents
may have another `to_a2a`.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from types import MethodType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    from pydantic_ai.agent import AbstractAgent

_AGENTS = 'pydantic_ai.agent'


def attach() -> None:
    """Give agents the methods: now, or once the program imports Pydantic AI.

    Pydantic AI takes a second to import, and a program without agents, such as most commands, does not need it.
    """
    if _AGENTS in sys.modules:
        _add_methods()
    else:
        sys.meta_path.insert(0, _Finder())


def _add_methods() -> None:
    """Add the methods, `to_a2a` only unless agents have one already. A method of a subclass goes before."""
    from pydantic_ai.agent import AbstractAgent  # noqa: PLC0415 - has been imported by the program

    AbstractAgent.__a2a_app__ = _Method()  # pyright: ignore[reportAttributeAccessIssue]
    if not hasattr(AbstractAgent, 'to_a2a'):
        AbstractAgent.to_a2a = _Method()  # pyright: ignore[reportAttributeAccessIssue]


class _Method:
    """`to_a2a` as a method of agents. The first use loads the server, which many importing programs never make."""

    def __get__(self, agent: AbstractAgent[Any, Any] | None, kind: type) -> Callable[..., Any]:
        from .to_a2a import to_a2a  # noqa: PLC0415 - not at the import of the package

        return to_a2a if agent is None else MethodType(to_a2a, agent)


class _Finder:
    """A finder of modules (PEP 451), which adds the methods after the module of agents has been executed."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != _AGENTS:
            return None
        sys.meta_path.remove(self)
        spec: Any = find_spec(name)
        spec.loader = _Loader(spec.loader)
        return spec


class _Loader:
    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        _add_methods()
