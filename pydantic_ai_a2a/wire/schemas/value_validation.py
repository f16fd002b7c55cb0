"""Validation of a JSON value by a JSON Schema, for the keywords of tools' parameters and answers.

Other keywords, such as `pattern` and `format`, are left to the user of the value: a remote tool may have written a
pattern, which would run on clients' text. Only the patterns of names are matched, in linear time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, cast

from pydantic_core import SchemaError, SchemaValidator, core_schema

Schema: TypeAlias = Mapping[str, Any]
Problem: TypeAlias = tuple[str, str]
"""Path of a value, and its fault."""

_MAX_DEPTH = 100
_MAX_STEPS = 100_000
"""Most schemas that one value is checked against. A schema may refer to itself, even in several ways at once."""
_MATCH_STEPS = 50
_PATTERN_STEPS = 2_000
_LARGE_PATTERN_STEPS = 20_000
"""Steps for a match of a name, for a pattern of names, and for one with counted repetitions or many characters, which
may take 80 ms to compile."""
_SMALL_PATTERN = 100
"""Most characters of a pattern that is not large."""
_LONGEST_MATCHED = 200
"""Most characters of a name that patterns match."""
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


class Level(NamedTuple):
    """The members of an object in a checked value, as one of the object's schemas names them."""

    of: int
    """`id` of the object."""
    named: Collection[str]
    """Members that `properties` or `patternProperties` name."""
    others: Collection[str]
    """Members that only `additionalProperties` names."""
    is_open: bool
    """True if the schema names no members at all, and so allows every member."""
    is_complete: bool
    """True if the object has all members of `properties`."""


def problem(value: Any, schema: Schema, field: str) -> Problem | None:
    """Return the first fault of a value; None if the value is valid.

    Args:
        value: The value.
        schema: Its schema.
        field: Path of the value in the request.
    """
    return _Check(schema).first(value, schema, field, 0)


def checked_levels(value: Any, schema: Schema, field: str) -> tuple[Problem | None, list[Level]]:
    """Return the first fault of a value, and the levels of a valid value: one for each object and each of its schemas.

    See `problem`.
    """
    check = _Check(schema)
    return check.first(value, schema, field, 0), check.levels


def properties_of(schema: Schema) -> dict[str, Any]:
    """Return the `properties` of a schema by which an object was checked, with those of its `$ref` and `allOf`."""
    return dict(_Check(schema).properties(schema))


class _Check:
    def __init__(self, root: Schema) -> None:
        self._root = root
        self._left = _MAX_STEPS
        self._patterns: dict[str, SchemaValidator | None] = {}
        self.levels: list[Level] = []

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

    def properties(self, schema: Any) -> Iterator[tuple[str, Any]]:
        """Yield the properties of all schemas that certainly apply to an object of the schema."""
        if isinstance(schema, Mapping):
            fields = cast('Schema', schema)
            inner: Sequence[Any] = fields.get('allOf', ())
            for applied in (*inner, *([self._resolve(fields['$ref'])] if '$ref' in fields else ())):
                yield from self.properties(applied)
            yield from fields.get('properties', {}).items()

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
            tried = [self._choice(value, choice, field, depth + 1) for choice in choices]
            self.levels += _of_choices([levels for fault, levels in tried if fault is None])
            faults = [fault for fault, _ in tried]
            fitting = faults.count(None)
            if choices and not (fitting == 1 or (fitting and keyword == 'anyOf')):
                yield _nearest(faults, field)

    def _choice(self, value: Any, schema: Any, field: str, depth: int) -> tuple[Problem | None, list[Level]]:
        """Return the first fault of a value by one of several schemas, and the levels of the value by this schema."""
        before = len(self.levels)
        fault = self.first(value, schema, field, depth)
        levels = self.levels[before:]
        del self.levels[before:]
        return fault, levels

    def _of_object(self, value: dict[str, Any], schema: Schema, field: str, depth: int) -> Iterator[Problem]:
        properties: Mapping[str, Any] = schema.get('properties', {})
        patterns: Mapping[str, Any] = schema.get('patternProperties', {})
        for name in schema.get('required', ()):
            if name not in value:
                yield f'{field}.{name}', 'is required'
        others = schema.get('additionalProperties')
        named: set[str] = set()
        for name, item in value.items():
            schemas = [properties[name]] if name in properties else self._matching(name, patterns)
            if schemas:
                named.add(name)
            for of_item in schemas or [True if others is None else others]:
                yield from self._some(self.first(item, of_item, f'{field}.{name}', depth + 1))
        by_others = () if others is None else value.keys() - named
        is_open = not properties and not patterns and others is None
        self.levels.append(Level(id(value), named, by_others, is_open, properties.keys() <= value.keys()))

    def _matching(self, name: str, patterns: Mapping[str, Any]) -> list[Any]:
        """Return the schemas of `patternProperties` for a member."""
        return [schema for pattern, schema in patterns.items() if self._matches(name, pattern)]

    def _matches(self, name: str, pattern: str) -> bool:
        if pattern not in self._patterns:
            is_large = len(pattern) > _SMALL_PATTERN or '{' in pattern
            self._left -= _LARGE_PATTERN_STEPS if is_large else _PATTERN_STEPS
            self._patterns[pattern] = _names_like(pattern) if self._left > 0 else None
        self._left -= _MATCH_STEPS
        like = self._patterns[pattern]
        return like is not None and self._left > 0 and len(name) <= _LONGEST_MATCHED and like.isinstance_python(name)

    def _of_list(self, value: list[Any], schema: Schema, field: str, depth: int) -> Iterator[Problem]:
        first: Sequence[Any] = schema.get('prefixItems', ())
        for n, item in enumerate(value):
            of_item = first[n] if n < len(first) else schema.get('items', True)
            yield from self._some(self.first(item, of_item, f'{field}[{n}]', depth + 1))


def _of_choices(fitting: Sequence[list[Level]]) -> list[Level]:
    """Return the levels of a value that fits some of several schemas: only the one that names most members names them.

    If one of the schemas names all members, it is this one. Else the tool would ignore some of the members.
    """
    best = max(fitting, key=_named, default=None)
    return [
        level if levels is best else level._replace(named=(), others=(), is_open=True)
        for levels in fitting
        for level in levels
    ]


def _named(levels: Sequence[Level]) -> int:
    return sum(len(level.named) + len(level.others) for level in levels)


def _names_like(pattern: str) -> SchemaValidator | None:
    """Return a validator of names; None for a pattern that cannot be matched in linear time, which names no member."""
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine='rust-regex'))
    except SchemaError:
        return None


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
