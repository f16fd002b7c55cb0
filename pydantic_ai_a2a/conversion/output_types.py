"""The types of an agent's outputs, read from its `output_type`."""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from pydantic_ai.output import NativeOutput, PromptedOutput, TextOutput, ToolOutput

from .files import File

__all__ = ('answers_in_text', 'declared_types', 'file_types', 'has_output_functions', 'type_name')

_WRAPPED: dict[type[Any], str] = {
    NativeOutput: 'outputs',
    PromptedOutput: 'outputs',
    TextOutput: 'output_function',
    ToolOutput: 'output',
}
"""Attribute with the output types, for each of Pydantic AI's markers."""
_UNIONS = (Union, types.UnionType)


def declared_types(spec: object) -> Iterator[Any]:
    """Yield the types of an output specification, as `AbstractAgent.output_json_schema` lists them."""
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
    return get_args(bare) if get_origin(bare) in _UNIONS else ()


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
    if get_origin(bare) not in {list, tuple, *_UNIONS}:
        return []
    items = [file_types(item) for item in get_args(bare) if item is not ...]
    return [file for item in items for file in item] if all(items) else []


def type_name(tp: Any) -> str:
    """Return a type as written in code, without its modules."""
    if tp is None or tp is type(None):
        return 'None'
    if tp is ...:
        return '...'
    origin, args = get_origin(tp), get_args(tp)
    if origin is None:
        return getattr(tp, '__name__', str(tp))
    if origin is Annotated:
        return type_name(args[0])
    if origin in _UNIONS:
        return ' | '.join(map(type_name, args))
    inner = map(repr if origin is Literal else type_name, args)
    return f'{type_name(origin)}[{", ".join(inner)}]'
