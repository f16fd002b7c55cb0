"""Validation of a JSON value by a JSON Schema, for the keywords of tools' parameters and answers.

Other keywords, such as `pattern` and `format`, are left to the user of the value: a remote tool may have written a
pattern, which would run on clients' text. Only the patterns of names are matched, in linear time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, NamedTuple, TypeAlias, cast

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_ai.output import NativeOutput, PromptedOutput, StructuredDict, ToolOutput
from pydantic_ai.tools import ToolDefinition
from pydantic_core import SchemaError, SchemaValidator, core_schema, from_json, to_json
from typing_extensions import TypedDict

from ..errors import FieldViolation, InvalidParamsError
from ..types import AgentExtension, Message, Part, faults_of
from .message_limits import deeper_than
from .output_mapper import NO_ANSWERS, OutputMapper, declared_types, type_name

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


# --- checks of JSON Schemas of other parties --------------------------------------------------------------------------
# Of clients in messages, and of remote agents on cards.
#
# A schema that passes is small, refers only to itself, and has the forms that JSON Schema gives to its keywords, so
# later code reads the schema without checks.

MAX_BYTES = 32_000
"""Most bytes of JSON of a schema, before and after its references are replaced."""
MAX_DEPTH = 32
"""Most nested objects and lists of a schema, before and after its references are replaced."""

_EXACT = 2**53
"""Largest whole number up to which all whole numbers are exact as floats."""
_DEFINITIONS = '#/$defs/'
_LITERALS = frozenset({'const', 'default', 'enum', 'examples'})
"""Keywords whose values are data, not schemas."""
_NAMED = frozenset({'properties', 'patternProperties', 'dependentSchemas', '$defs'})
"""Keywords whose values have schemas under names of the author."""
_ANNOTATIONS = frozenset({'title', 'description', 'default', 'examples', 'deprecated', '$comment'})
_UNSUPPORTED = ('$dynamicRef', '$recursiveRef', '$anchor', '$dynamicAnchor')
"""Keywords for references that only whole implementations of JSON Schema resolve."""

ForeignSchema: TypeAlias = dict[str, Any]


class UnusableSchema(ValueError):
    """A JSON Schema of another party that cannot be used.

    Args:
        field: Path of the fault.
        description: The fault, and the correct form.
    """

    def __init__(self, field: str, description: str) -> None:
        super().__init__(f'{field}: {description}')
        self.field = field
        self.description = description


class _Keywords(TypedDict, total=False):
    """The forms of the keywords that the package reads."""

    __pydantic_config__ = ConfigDict(extra='allow', strict=True)  # pyright: ignore[reportGeneralTypeIssues]

    type: str | list[str]
    title: str
    description: str
    enum: list[Any]
    required: list[str]
    properties: dict[str, _Keywords | bool]
    additionalProperties: _Keywords | bool
    items: _Keywords | bool
    prefixItems: list[_Keywords | bool]
    allOf: list[_Keywords | bool]
    anyOf: list[_Keywords | bool]
    oneOf: list[_Keywords | bool]
    minimum: float
    maximum: float
    exclusiveMinimum: float
    exclusiveMaximum: float
    minLength: int
    maxLength: int
    minItems: int
    maxItems: int


@cache
def _keywords_ta() -> TypeAdapter[_Keywords]:
    return TypeAdapter(_Keywords)


def check_schema(value: object, field: str, *, of_object: bool = True) -> ForeignSchema:
    """Return a JSON Schema, which may refer to its own `$defs`, also in circles.

    Args:
        value: The schema of another party, as JSON values.
        field: Path of the schema, for errors.
        of_object: True, the default, to take only schemas of objects. The returned schema then has the type `object`.

    Raises:
        UnusableSchema: The value is no such schema, is too large or too deep, or refers to another document.
    """
    _check_size(value, field)
    value = _with_integers(value)
    if not isinstance(value, dict):
        raise UnusableSchema(field, 'must be a JSON Schema')
    schema = cast('ForeignSchema', value)
    definitions: ForeignSchema = schema.get('$defs', {})
    _check_keywords(schema, definitions, field)
    if not of_object or schema.get('type') == 'object':
        return schema
    # Pydantic describes a recursive model by a reference.
    target: object = definitions.get(_definition_name(schema.get('$ref')) or '')
    if 'type' in schema or not isinstance(target, dict) or cast('ForeignSchema', target).get('type') != 'object':
        raise UnusableSchema(f'{field}.type', 'must be "object"')
    return {'type': 'object', **schema}


def _check_keywords(schema: ForeignSchema, definitions: ForeignSchema, field: str) -> None:
    """Check the forms of all keywords, and that all references lead to definitions."""
    for where, node in nodes(schema, field):
        if not isinstance(node.get('$defs', {}), dict):
            raise UnusableSchema(f'{where}.$defs', 'must be an object')
        try:
            _keywords_ta().validate_python(node)
        except ValidationError as error:
            [fault, *_] = faults_of(error)
            raise UnusableSchema(where + place_of(fault['loc'], node), fault['msg']) from None
        if unsupported := [keyword for keyword in _UNSUPPORTED if keyword in node]:
            raise UnusableSchema(f'{where}.{unsupported[0]}', 'is not supported: use "$ref" with "#/$defs/..."')
        if '$ref' in node and _definition_name(node['$ref']) not in definitions:
            raise UnusableSchema(f'{where}.$ref', 'must be "#/$defs/" and the name of a schema in "$defs"')


def inlined_schema(value: object, field: str) -> ForeignSchema:
    """Return the JSON Schema of an object without references: each is replaced by the schema to which it refers.

    Args:
        value: The schema of another party, as JSON values.
        field: Path of the schema, for errors.

    Raises:
        UnusableSchema: See `check_schema`; or the schema refers to itself in a circle, or is too large or too deep
            without references.
    """
    schema = check_schema(value, field)
    if '$defs' not in schema:
        return schema
    inlined = _Inlining(schema['$defs'], field).schema(schema)
    _check_size(inlined, field)
    return inlined


def is_small(value: object) -> bool:
    """Return True if JSON values are within the limits of the size and the depth."""
    return not deeper_than(MAX_DEPTH, value) and len(to_json(value)) <= MAX_BYTES


def _check_size(value: object, field: str) -> None:
    if deeper_than(MAX_DEPTH, value):
        raise UnusableSchema(field, f'must not be nested more than {MAX_DEPTH} deep')
    if not is_small(value):
        raise UnusableSchema(field, f'must not have more than {MAX_BYTES} bytes of JSON')


def _with_integers(value: Any) -> Any:
    """Return JSON with whole numbers as integers. Protobuf writes the integers of metadata and of cards as 1.0."""
    if isinstance(value, dict):
        return {name: _with_integers(item) for name, item in cast('dict[str, Any]', value).items()}
    if isinstance(value, list):
        return [_with_integers(item) for item in cast('list[Any]', value)]
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) <= _EXACT
    return int(value) if is_whole else value


def _definition_name(reference: object) -> str | None:
    """Return the name of a definition; None for another reference."""
    if not isinstance(reference, str) or not reference.startswith(_DEFINITIONS):
        return None
    return reference.removeprefix(_DEFINITIONS).replace('~1', '/').replace('~0', '~')


def nodes(node: object, where: str) -> Iterator[tuple[str, ForeignSchema]]:
    """Yield a schema and the schemas in it, with their paths, as far as they are objects."""
    if isinstance(node, list):
        for n, item in enumerate(cast('list[object]', node)):
            yield from nodes(item, f'{where}[{n}]')
    if not isinstance(node, dict):
        return
    schema = cast('ForeignSchema', node)
    yield where, schema
    for keyword, value in schema.items():
        if keyword in _NAMED and isinstance(value, dict):
            for name, item in cast('ForeignSchema', value).items():
                yield from nodes(item, f'{where}.{keyword}.{name}')
        elif keyword not in _LITERALS:
            yield from nodes(value, f'{where}.{keyword}')


class _Inlining:
    """The replacement of the references in a checked schema.

    Args:
        definitions: The schemas to which the references lead.
        field: Path of the schema, for errors.
    """

    def __init__(self, definitions: Mapping[str, Any], field: str) -> None:
        self._definitions = definitions
        self._field = field
        self._left = MAX_BYTES
        self._open: list[str] = []
        """Names of the definitions around the current schema."""

    def schema(self, node: Any) -> Any:
        """Return a schema, or a list of schemas, without references."""
        # A schema of JSON has more bytes than values. Two references to a schema with two references, and so on, would
        # have exponentially many values.
        self._left -= 1
        if self._left < 0:
            raise UnusableSchema(self._field, f'must not have more than {MAX_BYTES} bytes of JSON without references')
        if isinstance(node, list):
            return [self.schema(item) for item in cast('list[Any]', node)]
        if not isinstance(node, dict):
            return node
        own: ForeignSchema = {
            keyword: self._keyword(keyword, value) for keyword, value in cast('ForeignSchema', node).items()
        }
        own.pop('$defs', None)
        if '$ref' not in own:
            return own
        target = self._target(_definition_name(own.pop('$ref')))
        if isinstance(target, dict):
            fields = cast('ForeignSchema', target)
            own = {
                keyword: value for keyword, value in own.items() if keyword not in fields or fields[keyword] != value
            }
            if own.keys() <= _ANNOTATIONS:
                return {**fields, **own}
        others: list[Any] = own.get('allOf', [])
        own['allOf'] = [target, *others]
        return own

    def _keyword(self, keyword: str, value: Any) -> Any:
        if keyword == '$defs' or keyword in _LITERALS:
            return value
        if keyword in _NAMED and isinstance(value, dict):
            return {name: self.schema(item) for name, item in cast('ForeignSchema', value).items()}
        return self.schema(value)

    def _target(self, name: str | None) -> Any:
        assert name is not None, 'the schema was checked'
        if name in self._open:
            raise UnusableSchema(f'{self._field}.$defs.{name}', 'must not refer to itself: recursion is not supported')
        self._open.append(name)
        target = self.schema(self._definitions[name])
        self._open.pop()
        return target


# --- the client schema extension --------------------------------------------------------------------------------------
# The JSON Schema that a client wants for an answer, in the metadata of its message.

CLIENT_SCHEMA_URI = 'https://pypi.org/project/pydantic-ai-a2a/#client-schema-v1'
"""Name of the extension, and key of its data in the metadata of messages. Data with another meaning gets another
URI."""

CLIENT_SCHEMA = AgentExtension(
    uri=CLIENT_SCHEMA_URI,
    description='A message may have a JSON Schema in its metadata. The answer is then data that fits the schema.',
)
"""Declaration of the extension on agent cards."""

CLIENT_SCHEMA_FIELD = f'message.metadata["{CLIENT_SCHEMA_URI}"]'
"""Path of the extension's data in a request."""

_MEMBER = 'outputSchema'
"""Name of the schema in the stored request of a message."""
MARK = b'"outputSchema":'
"""Part of each stored request with a schema."""
_UNCHECKED = frozenset(
    {
        'additionalItems',
        'contains',
        'dependencies',
        'dependentRequired',
        'dependentSchemas',
        'else',
        'if',
        'maxContains',
        'maxProperties',
        'minContains',
        'minProperties',
        'multipleOf',
        'not',
        'pattern',
        'patternProperties',
        'propertyNames',
        'then',
        'unevaluatedItems',
        'unevaluatedProperties',
        'uniqueItems',
    }
)
"""Keywords for rules that the server does not check."""
_NO_NAME = re.compile(r'[^a-zA-Z0-9_-]')
"""Characters that providers of models refuse in names."""
_LONGEST_NAME = 40
"""Most characters of a schema's name for the model. Providers take 64 characters, with Pydantic AI's prefix."""


@dataclass(frozen=True)
class ClientOutput:
    """The output of a run, by the schema of a client."""

    schema: Mapping[str, Any]
    type: Any
    """The output type for Pydantic AI."""
    outputs: OutputMapper
    """Converts the output."""


def client_schema(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema that a message with such metadata wants for its answer.

    Raises:
        InvalidParamsError: The schema cannot be used.
    """
    value: Any = metadata[CLIENT_SCHEMA_URI]
    try:
        if not isinstance(value, dict) or 'schema' not in value:
            raise UnusableSchema(CLIENT_SCHEMA_FIELD, 'must be an object with a "schema"')
        return checked(cast('dict[str, Any]', value)['schema'], f'{CLIENT_SCHEMA_FIELD}.schema')
    except UnusableSchema as error:
        raise InvalidParamsError.of(error.field, error.description) from None


def checked(schema: object, field: str) -> dict[str, Any]:
    """Return a client's schema without references.

    Raises:
        UnusableSchema: The schema is no schema of an object, is too large or recursive, or has rules that the server
            does not check.
    """
    inlined = inlined_schema(schema, field)
    for where, node in nodes(inlined, field):
        if unchecked := sorted(_UNCHECKED & node.keys()):
            raise UnusableSchema(f'{where}.{unchecked[0]}', 'is not supported: remove the rule')
    return inlined


def with_client_schema(message: Message, schema: Mapping[str, Any]) -> Message:
    """Return a message that wants an answer by a schema."""
    metadata: Mapping[str, Any] = message.get('metadata', {})
    extensions: Sequence[str] = message.get('extensions', ())
    return {
        **message,
        'metadata': {**metadata, CLIENT_SCHEMA_URI: {'schema': schema}},
        'extensions': [*extensions, CLIENT_SCHEMA_URI],
    }


# --- the stored request ---------------------------------------------------------------------------------------------


def request_fields(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a stored request with a schema."""
    return {_MEMBER: schema}


def inherited(request: bytes | None, before: bytes | None) -> bytes | None:
    """Return the stored request of an answer, with the schema of the waiting run if the answer has no schema."""
    schema, own = _schema(before), _schema(request)
    if schema is None or own is not None:
        return request
    fields: dict[str, Any] = {} if request is None else from_json(request)
    return to_json({**fields, **request_fields(schema)})


def _schema(request: bytes | None) -> dict[str, Any] | None:
    return None if request is None or MARK not in request else from_json(request).get(_MEMBER)


def client_output(request: bytes | None, *, data_as_text: bool) -> ClientOutput | None:
    """Return the output of a run, by the stored request of its message; None for the output of the agent."""
    schema = _schema(request)
    return None if schema is None else _output(to_json(schema), data_as_text)


@lru_cache(maxsize=128)
def _output(schema: bytes, data_as_text: bool) -> ClientOutput:
    fields = from_json(schema)
    outputs = OutputMapper(StructuredDict(from_json(schema)), data_as_text=data_as_text)
    return ClientOutput(fields, StructuredDict(from_json(schema), name=_output_name(fields.get('title', ''))), outputs)


def _output_name(title: str) -> str:
    """Return a title in the form that providers of models take as a name."""
    return _NO_NAME.sub('', title)[:_LONGEST_NAME] or 'Answer'


# --- the output type ------------------------------------------------------------------------------------------------


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


# --- tools of clients -------------------------------------------------------------------------------------------------
# Declared in the metadata of messages, called by the agent, and answered by the client.

CLIENT_TOOLS_URI = 'https://pypi.org/project/pydantic-ai-a2a/#client-tools-v1'
"""Name of the extension, and key of its data in the metadata of messages. Data with another meaning gets another
URI."""

CLIENT_TOOLS = AgentExtension(
    uri=CLIENT_TOOLS_URI,
    description='A message may declare tools in its metadata. The agent may call the tools, and the client answers the'
    ' calls like other pending calls.',
)
"""Declaration of the extension on agent cards."""

CLIENT_TOOLS_FIELD = f'message.metadata["{CLIENT_TOOLS_URI}"]'
"""Path of the declaration in a request."""

_KEY = f'"{CLIENT_TOOLS_URI}"'.encode()
_NAME = re.compile(r'[A-Za-z0-9_-]{1,64}')
"""Names that the providers of models accept."""
_DESCRIPTION = 4_096
"""Most characters of a description."""
_OUTPUT = re.compile(r'final_result(_.*)?')
"""Names that Pydantic AI gives to tools for structured outputs."""


class ClientTools:
    """Reads the tools that messages declare.

    Args:
        limit: Most tools of a message.
        taken: Returns the names of the agent's tools, as far as known before a run.
    """

    def __init__(self, limit: int, taken: Callable[[], Collection[str]]) -> None:
        self._limit = limit
        self._taken = taken

    def check(self, message: Message) -> bool:
        """Return True if a message declares tools, or declares that its task has none.

        Raises:
            InvalidParamsError: A tool cannot be used, or has a reserved name, or the name of a tool of the agent.
        """
        tools = self.of(message)
        if tools is None:
            return False
        names = self._taken()
        for n, tool in enumerate(tools):
            if _OUTPUT.fullmatch(tool.name):
                fault = 'is reserved for the structured output of agents'
            elif tool.name in names:
                fault = 'is the name of a tool of the agent'
            else:
                continue
            raise InvalidParamsError.of(f'{CLIENT_TOOLS_FIELD}.tools[{n}].name', f'{fault}: choose another name')
        return True

    def of(self, message: Message) -> list[ToolDefinition] | None:
        """Return the tools that a message declares; None for a message without a declaration.

        Raises:
            InvalidParamsError: A tool cannot be used.
        """
        metadata: dict[str, Any] = message.get('metadata') or {}
        if CLIENT_TOOLS_URI not in metadata:
            return None
        declared: Any = metadata[CLIENT_TOOLS_URI]
        items: Any = cast('dict[str, Any]', declared).get('tools') if isinstance(declared, dict) else None
        if not isinstance(items, list):
            raise InvalidParamsError.of(f'{CLIENT_TOOLS_FIELD}.tools', 'must be a list of tools')
        tools = cast('list[Any]', items)
        if len(tools) > self._limit:
            raise InvalidParamsError.of(f'{CLIENT_TOOLS_FIELD}.tools', f'must not have more than {self._limit} tools')
        definitions: dict[str, ToolDefinition] = {}
        for n, tool in enumerate(tools):
            field = f'{CLIENT_TOOLS_FIELD}.tools[{n}]'
            definition = _definition(tool, field)
            if definition.name in definitions:
                raise InvalidParamsError.of(f'{field}.name', 'is the name of an earlier tool: choose another name')
            definitions[definition.name] = definition
        return [*definitions.values()]


def _definition(tool: Any, field: str) -> ToolDefinition:
    """Return a tool for the model. Members of other definitions of tools, such as MCP's, have no effect."""
    if not isinstance(tool, dict):
        raise InvalidParamsError.of(field, 'must be an object with a name, a description and an inputSchema')
    members = cast('dict[str, Any]', tool)
    name, description = members.get('name'), members.get('description', '')
    if not (isinstance(name, str) and _NAME.fullmatch(name)):
        raise InvalidParamsError.of(f'{field}.name', 'must have 1 to 64 letters, digits, "_" or "-" of ASCII')
    if not isinstance(description, str) or len(description) > _DESCRIPTION:
        raise InvalidParamsError.of(f'{field}.description', f'must be a text of at most {_DESCRIPTION} characters')
    try:
        schema = inlined_schema(members.get('inputSchema'), f'{field}.inputSchema')
    except UnusableSchema as error:
        raise InvalidParamsError.of(error.field, error.description) from None
    return ToolDefinition(name=name, description=description or None, parameters_json_schema=schema)


def has_tools(message: bytes) -> bool:
    """Return False if a stored message certainly declares no tools."""
    return _KEY in message


def metadata_of(tools: Sequence[ToolDefinition]) -> dict[str, Any]:
    """Return the metadata of a message that declares tools."""
    return {
        CLIENT_TOOLS_URI: {
            'tools': [
                {'name': tool.name, 'description': tool.description or '', 'inputSchema': tool.parameters_json_schema}
                for tool in tools
            ]
        }
    }


# --- the data in a message that begins a task, validated by the agent's declared input type ---------------------------

_SHOWN = 20
"""Problems of one message that are told at once."""
_COUNTED = 1_000
"""Most problems with details. More problems are only counted, because details take long."""


class NoInput(Exception):
    """The task has no input of the requested type."""


class ValidatedInput(NamedTuple):
    """The validated data of a message."""

    type: Any
    """The declared input type."""
    value: Any
    """The object of the type."""
    part: int
    """Place of the data among the parts of the message."""
    data: Any
    """The object as JSON values, for the model."""
    given: Any
    """The data of the client."""

    def shown(self, message: Message) -> Message:
        """Return the message with the validated data in the place of the client's data."""
        parts = [*message['parts']]
        parts[self.part] = cast('Part', {**parts[self.part], 'data': self.data})
        return {**message, 'parts': parts}


def input_of(validated: ValidatedInput | None, input_type: Any) -> Any:
    """Return the validated object.

    Raises:
        NoInput: There is no object, or the object has another type.
    """
    if validated is None:
        raise NoInput(
            'The task has no validated input: it runs outside of A2A, or without Messages.input_type, or has begun with'
            ' other data before input_type was set.'
        )
    if validated.type != input_type:
        raise NoInput(
            f'Messages.input_type is {type_name(validated.type)}, not {type_name(input_type)}. Ask for the declared'
            ' type.'
        )
    return validated.value


class TypedInput:
    """The declared input type of an agent.

    Args:
        input_type: Any type that Pydantic can validate.
    """

    def __init__(self, input_type: Any) -> None:
        self._type = input_type
        self._adapter: TypeAdapter[Any] = TypeAdapter(input_type)
        self.schema: dict[str, Any] = self._adapter.json_schema(mode='validation')
        """JSON Schema of the data, for the agent card."""

    def check(self, message: Message) -> None:
        """Refuse a message that begins a task without exactly one data part of the type.

        Text and files may accompany the data.

        Raises:
            InvalidParamsError: The message has no data part, several data parts, or invalid data; named by the fields
                of the data.
        """
        if 'task_id' not in message:  # a task that asks back may be answered in words
            self._validate(message)

    def validated(self, message: Message) -> ValidatedInput | None:
        """Return the data of a stored message that has begun a task; None for a message that does not fit the type.

        The server may have accepted the message before the type was declared or changed.
        """
        try:
            place, value = self._validate(message)
        except InvalidParamsError:
            return None
        data = self._adapter.dump_python(value, mode='json', by_alias=True, warnings=False)
        return ValidatedInput(self._type, value, place, data, message['parts'][place].get('data'))

    def _validate(self, message: Message) -> tuple[int, Any]:
        """Return the place of the one data part of a message, and the validated object."""
        places = [n for n, part in enumerate(message['parts']) if 'data' in part]
        if len(places) != 1:
            raise InvalidParamsError.of('message.parts', 'must have one data part, with the inputSchema of the card')
        [n] = places
        data = message['parts'][n].get('data')
        try:
            return n, self._adapter.validate_json(to_json(data))
        except ValidationError as error:
            raise _refusal(error, f'message.parts[{n}].data', data) from None


def _refusal(error: ValidationError, field: str, data: Any) -> InvalidParamsError:
    if (count := error.error_count()) > _COUNTED:
        return InvalidParamsError.of(field, f'has {count} problems')
    violations = [
        FieldViolation(field + place_of(detail['loc'], data, missing=detail['type'] == 'missing'), detail['msg'])
        for detail in faults_of(error)[:_SHOWN]
    ]
    first = violations[0]
    return InvalidParamsError(f'Invalid parameters: {first.field}: {first.description}', violations=violations)


def place_of(loc: Sequence[int | str], data: Any, *, missing: bool = False) -> str:
    """Return the path of a problem in data, without the members of unions in Pydantic's location."""
    path = ''
    for step in loc:
        if _has(data, step):
            data, path = data[step], path + _step(step)
    return path + _step(loc[-1]) if missing else path


def _has(data: Any, step: int | str) -> bool:
    if isinstance(data, list):
        return isinstance(step, int) and step < len(cast('list[Any]', data))
    return isinstance(data, dict) and step in data


def _step(step: int | str) -> str:
    return f'[{step}]' if isinstance(step, int) else f'.{step}'
