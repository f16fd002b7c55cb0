"""Validation of a JSON value by a JSON Schema, for the keywords of tools' parameters and answers.

Other keywords, such as `pattern` and `format`, are left to the user of the value: a remote tool may have written a
pattern, which would run on clients' text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

__all__ = ('problem',)

Schema: TypeAlias = Mapping[str, Any]
Problem: TypeAlias = tuple[str, str]
"""Path of a value, and its fault."""

_MAX_DEPTH = 100
_MAX_STEPS = 100_000
"""Most schemas that one value is checked against. A schema may refer to itself, even in several ways at once."""


def problem(value: Any, schema: Schema, field: str) -> Problem | None:
    """Return the first fault of a value; None if the value is valid.

    Args:
        value: The value.
        schema: Its schema.
        field: Path of the value in the request.
    """
    return _Check(schema).first(value, schema, field, 0)


class _Check:
    def __init__(self, root: Schema) -> None:
        self._root = root
        self._left = _MAX_STEPS

    def first(self, value: Any, schema: Any, field: str, depth: int) -> Problem | None:
        self._left -= 1
        if depth > _MAX_DEPTH or self._left < 0:
            return field, 'is too large or too deeply nested to check against the schema'
        if not isinstance(schema, Mapping):
            return (field, 'is not allowed') if schema is False else None
        return next(self._problems(value, cast('Schema', schema), field, depth), None)

    def _problems(self, value: Any, schema: Schema, field: str, depth: int) -> Iterator[Problem]:
        if '$ref' in schema:
            yield from self._some(self.first(value, self._resolve(schema['$ref']), field, depth + 1))
        if (described := _of_value(value, schema)) is not None:
            yield field, described
        yield from self._combined(value, schema, field, depth)
        if isinstance(value, dict):
            yield from self._of_object(cast('dict[str, Any]', value), schema, field, depth)
        elif isinstance(value, list):
            yield from self._of_list(cast('list[Any]', value), schema, field, depth)

    def _some(self, fault: Problem | None) -> Iterator[Problem]:
        if fault is not None:
            yield fault

    def _resolve(self, reference: Any) -> Any:
        """Return the target of a reference within the schema; None if it has no target, which allows any value."""
        at: Any = self._root
        for step in str(reference).removeprefix('#').split('/')[1:]:
            name = step.replace('~1', '/').replace('~0', '~')
            at = cast('Schema', at).get(name) if isinstance(at, Mapping) else None
        return at

    def _combined(self, value: Any, schema: Schema, field: str, depth: int) -> Iterator[Problem]:
        for inner in schema.get('allOf', ()):
            yield from self._some(self.first(value, inner, field, depth + 1))
        for keyword in ('anyOf', 'oneOf'):
            choices: Sequence[Any] = schema.get(keyword, ())
            faults = [self.first(value, choice, field, depth + 1) for choice in choices]
            fitting = faults.count(None)
            if choices and not (fitting == 1 or (fitting and keyword == 'anyOf')):
                yield _nearest(faults, field)

    def _of_object(self, value: dict[str, Any], schema: Schema, field: str, depth: int) -> Iterator[Problem]:
        properties: Mapping[str, Any] = schema.get('properties', {})
        for name in schema.get('required', ()):
            if name not in value:
                yield f'{field}.{name}', 'is required'
        rest = schema.get('additionalProperties', True)
        for name, item in value.items():
            yield from self._some(self.first(item, properties.get(name, rest), f'{field}.{name}', depth + 1))

    def _of_list(self, value: list[Any], schema: Schema, field: str, depth: int) -> Iterator[Problem]:
        first: Sequence[Any] = schema.get('prefixItems', ())
        for n, item in enumerate(value):
            of_item = first[n] if n < len(first) else schema.get('items', True)
            yield from self._some(self.first(item, of_item, f'{field}[{n}]', depth + 1))


def _nearest(faults: Sequence[Problem | None], field: str) -> Problem:
    """Return the fault that is deepest in the value, which is in the intended choice."""
    problems = [fault for fault in faults if fault is not None]
    if not problems or all(where == field for where, _ in problems):
        return field, 'matches none of the allowed forms' if problems else 'matches more than one of the allowed forms'
    return max(problems, key=lambda fault: len(fault[0]))


def _is_integer(value: Any) -> bool:
    return _is_number(value) and (isinstance(value, int) or value.is_integer())


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


_TYPES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    'string': (lambda value: isinstance(value, str), 'a string'),
    'integer': (_is_integer, 'an integer'),
    'number': (_is_number, 'a number'),
    'boolean': (lambda value: isinstance(value, bool), 'true or false'),
    'object': (lambda value: isinstance(value, dict), 'an object'),
    'array': (lambda value: isinstance(value, list), 'a list'),
    'null': (lambda value: value is None, 'null'),
}
_BOUNDS: Mapping[str, tuple[Callable[[Any, Any], bool], str]] = {
    'minimum': (lambda value, bound: value >= bound, 'must be at least {}'),
    'maximum': (lambda value, bound: value <= bound, 'must be at most {}'),
    'exclusiveMinimum': (lambda value, bound: value > bound, 'must be more than {}'),
    'exclusiveMaximum': (lambda value, bound: value < bound, 'must be less than {}'),
}
_LENGTHS: Mapping[type[Any], tuple[str, str, str]] = {
    str: ('minLength', 'maxLength', 'characters'),
    list: ('minItems', 'maxItems', 'items'),
}


def _of_value(value: Any, schema: Schema) -> str | None:
    """Return the fault of a value apart from its members."""
    if (types := schema.get('type')) is not None:
        names = [types] if isinstance(types, str) else types
        checks = [_TYPES[name] for name in names if name in _TYPES]
        if checks and not any(check(value) for check, _ in checks):
            return f'must be {" or ".join(name for _, name in checks)}'
    if 'const' in schema and not _equal(value, schema['const']):
        return f'must be {schema["const"]!r}'
    if 'enum' in schema and not any(_equal(value, choice) for choice in schema['enum']):
        return f'must be one of {", ".join(map(repr, schema["enum"]))}'
    return _bounds(value, schema)


def _equal(value: Any, other: Any) -> bool:
    """Compare as in JSON, where true is not 1."""
    return value == other and isinstance(value, bool) == isinstance(other, bool)


def _bounds(value: Any, schema: Schema) -> str | None:
    if _is_number(value):
        for keyword, (holds, text) in _BOUNDS.items():
            if keyword in schema and not holds(value, schema[keyword]):
                return text.format(schema[keyword])
    if isinstance(value, (str, list)):
        least, most, what = _LENGTHS[str if isinstance(value, str) else list]
        size = len(cast('Sequence[Any]', value))
        if not schema.get(least, 0) <= size <= schema.get(most, size):
            return f'must have {schema.get(least, 0)} to {schema.get(most, "any number of")} {what}'
    return None
