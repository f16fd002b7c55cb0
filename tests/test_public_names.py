"""What a user's function gets from the package can be imported from it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast, get_args, get_origin

from typing_extensions import get_type_hints

import pydantic_ai_a2a
from pydantic_ai_a2a.server.agent.dependencies import DepsFactory
from pydantic_ai_a2a.server.agent.hooks import Hooks
from pydantic_ai_a2a.server.conversion.typed_input import ValidatedInput

PUBLIC = [getattr(pydantic_ai_a2a, name) for name in vars(pydantic_ai_a2a)['__all__']]


def parts(hint: Any) -> Iterator[Any]:
    """Yield an annotation and what is inside of it."""
    yield hint
    for inner in cast('list[Any]', hint) if isinstance(hint, list) else get_args(hint):
        yield from parts(inner)


def attributes(kind: type) -> Iterator[Any]:
    """Yield the annotations of the public fields and properties of a class."""
    fields = {name: hint for name, hint in get_type_hints(kind).items() if not name.startswith('_')}
    getters = [value.fget for _, value in inspect.getmembers(kind) if isinstance(value, property)]
    yield from [*fields.values(), *(get_type_hints(getter).get('return') for getter in getters)]


def own_classes(hints: Iterable[Any]) -> set[type]:
    """Return the classes of the package in annotations."""
    inner = (part for hint in hints for part in parts(hint))
    return {kind for kind in inner if inspect.isclass(kind) and kind.__module__.startswith('pydantic_ai_a2a.')}


def test_arguments_of_hooks_and_rules_are_exported() -> None:
    groups = [Hooks, *(kind for kind in PUBLIC if kind.__module__.startswith('pydantic_ai_a2a.settings.'))]
    hints = [DepsFactory, *(hint for group in groups for hint in get_type_hints(group).values())]
    functions = (get_args(part)[0] for hint in hints for part in parts(hint) if get_origin(part) is Callable)
    reached, unread = set[type](), own_classes(functions)
    assert pydantic_ai_a2a.WaitingTask in unread
    while unread:
        reached |= unread
        unread = own_classes(hint for kind in unread for hint in attributes(kind)) - reached
    assert pydantic_ai_a2a.WaitingCall in reached
    assert reached - {*PUBLIC} == {ValidatedInput}  # of `CallContext.validated`, which `CallContext.input` reads
