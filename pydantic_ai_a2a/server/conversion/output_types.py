"""The types of an agent's outputs, read from its `output_type`."""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, cast, get_args, get_origin, get_type_hints

from pydantic_ai.output import NativeOutput, PendingModelResponse, PromptedOutput, TextOutput, ToolOutput
from pydantic_ai.tools import DeferredToolRequests

from ...type_names import UNIONS
from ...wire.parts.file_parts import File
from .chosen_states import STATES

NO_ANSWERS = (DeferredToolRequests, PendingModelResponse, *STATES)
"""Output types for the end of a run without an answer."""

_WRAPPED: dict[type[Any], str] = {
    NativeOutput: 'outputs',
    PromptedOutput: 'outputs',
    TextOutput: 'output_function',
    ToolOutput: 'output',
}
"""Attribute with the output types, for each of Pydantic AI's markers."""


def declared_types(spec: object) -> Iterator[Any]:
    """Yield the types of an output specification, as `AbstractAgent.output_json_schema` lists them.

    Raises:
        TypeError: The specification is none.
    """
    if isinstance(spec, str | bytes | int | float | Mapping):
        raise TypeError(
            'output_type takes a type, a function, an output such as ToolOutput, or a list of these, not '
            f'{reprlib.repr(cast("Any", spec))}.'
        )
    if wrapped := _WRAPPED.get(type(spec)):
        yield from declared_types(getattr(spec, wrapped))
    elif isinstance(spec, Sequence):
        for item in cast('Sequence[Any]', spec):
            yield from declared_types(item)
    elif _is_function(spec):
        yield from declared_types(_returned(spec))
    else:
        yield from _union_members(spec) or (spec,)


def _is_function(spec: object) -> bool:
    return isinstance(spec, partial) or inspect.isfunction(spec) or inspect.ismethod(spec)


def has_output_functions(spec: object) -> bool:
    """Return True if a function of the user makes an output."""
    if isinstance(spec, TextOutput):
        return True
    if wrapped := _WRAPPED.get(type(spec)):
        return has_output_functions(getattr(spec, wrapped))
    if isinstance(spec, Sequence):
        return any(map(has_output_functions, cast('Sequence[Any]', spec)))
    return _is_function(spec)


def calls_function(spec: object) -> bool:
    """Return True if an output is made by a function of the user, or picks one: see `pydantic_ai.output.Choices`."""
    return has_output_functions(spec) or any(hasattr(tp, 'keys_type') for tp in declared_types(spec))


def _returned(function: Any) -> Any:
    """Return the declared result of an output function; text by default, as in Pydantic AI."""
    if isinstance(function, partial):
        function = cast('partial[Any]', function).func
    return get_type_hints(function, include_extras=True).get('return', str)


def answers_in_text(spec: Any) -> bool:
    """Return True if the model's text is the output, without an output function."""
    if isinstance(spec, Sequence):
        return any(answers_in_text(item) for item in cast('Sequence[Any]', spec))
    return spec is str or str in _union_members(spec)


def _union_members(tp: Any) -> tuple[Any, ...]:
    bare = _bare(tp)
    return get_args(bare) if get_origin(bare) in UNIONS else ()


def _bare(tp: Any) -> Any:
    """Return a type without its annotations and aliases."""
    while True:
        if get_origin(tp) is Annotated:
            tp = tp.__origin__
        elif hasattr(tp, '__value__'):
            tp = tp.__value__
        else:
            return tp


def file_types(tp: Any) -> list[type[File]]:
    """Return the file classes in a type, list, tuple or union; empty if it includes other types."""
    bare = _bare(tp)
    if isinstance(bare, type) and issubclass(bare, File):
        return [bare]
    if get_origin(bare) not in {list, tuple, *UNIONS}:
        return []
    items = [file_types(item) for item in get_args(bare) if item is not ...]
    return [file for item in items for file in item] if all(items) else []


def states_of(spec: Any) -> Iterator[Any]:
    """Yield the members of an output type that end a run without an answer, such as `InputRequired`."""
    if isinstance(spec, (NativeOutput, PromptedOutput)):
        yield from states_of(cast('NativeOutput[Any]', spec).outputs)
    elif isinstance(spec, Sequence):
        for item in cast('Sequence[Any]', spec):
            yield from states_of(item)
    else:
        types = [*declared_types(spec)]
        states = [tp for tp in types if tp in NO_ANSWERS]
        is_whole = types == states and (len(types) == 1 or isinstance(spec, ToolOutput))
        yield from (spec,) if is_whole else states
