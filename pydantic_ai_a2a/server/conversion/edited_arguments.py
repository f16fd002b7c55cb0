"""Which members an approval may write, and with which arguments a call runs.

Only the code of a tool knows under which other names it reads an argument: a parameter model has aliases, and
`populate_by_name`. A server that takes an answer may not have this code. So people and the rule of approvers can trust
only names in the JSON Schema of the arguments:

- An approval may write a member only if the schema names it, at each depth: in `properties`, in `patternProperties`, or
  by an `additionalProperties` other than false. An object whose schemas name no members is open: it takes every member.
- All schemas that apply to an object name its members: its own, that of a `$ref`, all of `allOf`, and of `anyOf` and
  `oneOf` the one that names most of the members, among those that the value fits.
- A member that the call has already, with the same value at the same path, may stay: the approval does not write it.

The arguments with which a call runs are certain, with the defaults of the schema, only if the arguments fit the schema
and the schema names all members. They are also uncertain if an object has a member that only `additionalProperties`
names, and lacks a member of `properties`, because the first may be another name of the second.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from ...wire.schemas.value_validation import Level, Problem, Schema, checked_levels, properties_of

_ABSENT = object()
_UNNAMED = 'is not a member that the schema names: an approval may not add or change it'


def fault_of(args: Any, schema: Schema, before: Mapping[str, Any] | None, field: str) -> Problem | None:
    """Return the first fault of the arguments of an approval; None for arguments that the approval may have.

    Args:
        args: The arguments.
        schema: JSON Schema of the arguments.
        before: The arguments of the call; None if they are not known.
        field: Path of the arguments in the request.
    """
    fault, levels = checked_levels(args, schema, field)
    if fault is not None:
        return fault
    return next(((path, _UNNAMED) for path in _written(args, before, _by_object(levels), field)), None)


def as_run(args: dict[str, Any], schema: Schema) -> dict[str, Any] | None:
    """Return the arguments with which a call runs, with the defaults of the schema; None if they are not certain."""
    fault, levels = checked_levels(args, schema, '')
    by_object = _by_object(levels)
    if fault is not None or any(map(_may_rename, by_object.values())):
        return None
    if next(_written(args, None, by_object, ''), None) is not None:
        return None
    defaults = {
        name: cast('Schema', parameter)['default']
        for name, parameter in properties_of(schema).items()
        if isinstance(parameter, Mapping) and 'default' in parameter
    }
    return defaults | args


def _by_object(levels: Sequence[Level]) -> dict[int, Level]:
    """Return what all schemas of an object say about its members, by the `id` of the object."""
    # Each object of JSON stands at one path.
    merged: dict[int, Level] = {}
    for level in levels:
        named, others, is_open, is_complete = (), (), True, True
        if level.of in merged:
            _, named, others, is_open, is_complete = merged[level.of]
        merged[level.of] = Level(
            level.of,
            {*named, *level.named},
            {*others, *level.others},
            is_open and level.is_open,
            is_complete and level.is_complete,
        )
    return merged


def _may_rename(level: Level) -> bool:
    return not level.is_complete and not {*level.others} <= {*level.named}


def _written(value: Any, before: Any, levels: Mapping[int, Level], field: str) -> Iterator[str]:
    """Yield the paths of the members that no schema names, except those that the value had before."""
    if isinstance(value, list):
        items = cast('list[Any]', value)
        earlier = cast('list[Any]', before) if isinstance(before, list) else []
        for n, item in enumerate(items):
            yield from _written(item, earlier[n] if n < len(earlier) else _ABSENT, levels, f'{field}[{n}]')
    elif isinstance(value, dict) and id(cast('object', value)) in levels:
        level = levels[id(cast('object', value))]
        earlier = cast('dict[str, Any]', before) if isinstance(before, dict) else {}
        for name, item in cast('dict[str, Any]', value).items():
            same = earlier.get(name, _ABSENT)
            if level.is_open or name in level.named or name in level.others:
                yield from _written(item, same, levels, f'{field}.{name}')
            elif not _equal(item, same):
                yield f'{field}.{name}'


def _equal(value: Any, other: Any) -> bool:
    """Compare as in JSON, where true is not 1, but 1 is 1.0."""
    if isinstance(value, dict) and isinstance(other, dict):
        members, others = cast('dict[str, Any]', value), cast('dict[str, Any]', other)
        return members.keys() == others.keys() and all(_equal(members[name], others[name]) for name in members)
    if isinstance(value, list) and isinstance(other, list):
        items, more = cast('list[Any]', value), cast('list[Any]', other)
        return len(items) == len(more) and all(map(_equal, items, more))
    return value == other and isinstance(value, bool) == isinstance(other, bool)
