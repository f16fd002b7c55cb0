from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, update_wrapper
from typing import Annotated, Any, Literal

import pytest
from inline_snapshot import snapshot
from pydantic import BeforeValidator, Field
from pydantic_ai import Agent, BinaryContent, BinaryImage, RunContext
from pydantic_ai.messages import BinaryAudio
from pydantic_ai.output import (
    Choice,
    Choices,
    NativeOutput,
    PendingModelResponse,
    PromptedOutput,
    StructuredDict,
    TextOutput,
    ToolOutput,
)
from pydantic_ai.tools import DeferredToolRequests
from typing_extensions import TypeAliasType, TypedDict

from pydantic_ai_a2a.server.conversion.artifacts import Artifacts
from pydantic_ai_a2a.server.conversion.output_mapper import OutputMapper
from pydantic_ai_a2a.server.conversion.unwritable_outputs import UnserializableOutput

from .conversion_values import WEATHER, Color, Point, Weather, result_and_type, single_part


class Forecast(Weather):
    days: int = 3


class Size(TypedDict):
    width: int


Both = TypeAliasType('Both', Weather | Point)


class Handle:
    """No type that Pydantic knows."""


def test_subclass_output_is_serialized_as_its_declared_model() -> None:
    assert result_and_type([Point, Weather], Forecast(city='Ede', tempC=1)) == snapshot(
        [({'city': 'Ede', 'tempC': 1.0, 'warm': False}, 'Weather')]
    )


def test_output_is_serialized_by_its_declared_type() -> None:
    outputs = [
        result_and_type(int, 3),
        result_and_type(list[Weather], [WEATHER]),
        result_and_type(tuple[int, Point], (1, Point(2))),
        result_and_type(dict[str, Any], {'a': [None]}),
        result_and_type(Size, {'width': 1}),
        result_and_type(Color, Color.RED),
        result_and_type(Literal['a', 'b'], 'a'),
        result_and_type(Annotated[str, Field(max_length=3)], 'abc'),
        result_and_type(bool | None, True),
        result_and_type(Weather | None, None),
        result_and_type([Weather, None], None),
        result_and_type(Any, {1}),
    ]
    assert outputs == snapshot(
        [
            [(3, 'int')],
            [([{'city': 'Utrecht', 'tempC': 21.5, 'warm': True}], 'list[Weather]')],
            [([1, {'x': 2, 'y': 0}], 'tuple[int, Point]')],
            [({'a': [None]}, 'dict[str, Any]')],
            [({'width': 1}, 'Size')],
            [('red', 'Color')],
            [('a', "Literal['a', 'b']")],
            [('abc', 'str')],
            [(True, 'bool')],
            [(None, 'None')],
            [(None, 'None')],
            [([1], 'Any')],
        ]
    )


def test_output_is_matched_to_its_declared_union_member() -> None:
    members = [int, bool, Weather, Forecast, Point, Size, list[int], list[str], Literal['a']]
    values = [True, 1, WEATHER, Forecast(city='Ede', tempC=1), Point(1), {'width': 1}, ['a'], [1], 'a']
    assert result_and_type(members, *values) == snapshot(
        [
            (True, 'bool'),
            (1, 'int'),
            ({'city': 'Utrecht', 'tempC': 21.5, 'warm': True}, 'Weather'),
            ({'city': 'Ede', 'tempC': 1.0, 'days': 3, 'warm': False}, 'Forecast'),
            ({'x': 1, 'y': 0}, 'Point'),
            ({'width': 1}, 'Size'),
            (['a'], 'list[str]'),
            ([1], 'list[int]'),
            ('a', "Literal['a']"),
        ]
    )


def split(value: str) -> str:
    return value.upper()


def test_unmatched_output_gets_schema_of_whole_union() -> None:
    parsed = Annotated[int, BeforeValidator(split), Field(gt=0)]
    assert single_part([parsed, Weather, Handle], 1.5) == snapshot(
        {
            'data': {'result': 1.5},
            'media_type': 'application/json',
            'metadata': {
                'json_schema': {
                    'anyOf': [{'type': 'integer', 'gt': 0}, {'$ref': '#/$defs/Weather'}, {}],
                    '$defs': {
                        'Weather': {
                            'properties': {
                                'city': {'title': 'City', 'type': 'string'},
                                'tempC': {'title': 'Tempc', 'type': 'number'},
                                'warm': {'readOnly': True, 'title': 'Warm', 'type': 'boolean'},
                            },
                            'required': ['city', 'tempC', 'warm'],
                            'title': 'Weather',
                            'type': 'object',
                        }
                    },
                },
                'python_type': 'int | Weather | Handle',
            },
        }
    )
    assert result_and_type([Weather, Forecast], [WEATHER])[0][1] == 'Weather | Forecast'


@pytest.mark.parametrize(
    'spec',
    [
        NativeOutput([Weather, Point]),
        PromptedOutput([Weather, Point]),
        [ToolOutput(Weather), ToolOutput(Point, name='point')],
        [[Weather], [Point, DeferredToolRequests], PendingModelResponse],
        Both,
        Annotated[Weather | Point, Field(description='Either')],
    ],
)
def test_output_types_are_found_in_every_output_specification(spec: Any) -> None:
    assert OutputMapper(spec).modes == ['application/json']
    parts: list[Any] = [single_part(spec, output) for output in (WEATHER, Point(1))]
    assert [part['metadata']['python_type'] for part in parts] == ['Weather', 'Point']
    schemas = [part['metadata']['json_schema'] for part in parts]
    assert Agent('test', output_type=[Weather, Point]).output_json_schema() == {'anyOf': schemas}


def count(text: str) -> int:
    return len(text)


async def look_up(ctx: RunContext[None], city: str) -> Weather:
    return WEATHER


def shout(text: str) -> str:
    return text.upper()


def untyped(text: str):
    return text


class Desk:
    def find(self, name: str) -> list[Point]:
        return [Point(1)]


@pytest.mark.parametrize(
    ('function', 'output', 'name'),
    [
        (count, 1, 'int'),
        (TextOutput(count), 1, 'int'),
        (look_up, WEATHER, 'Weather'),
        (Desk().find, [Point(1)], 'list[Point]'),
        (TextOutput(update_wrapper(partial(count), count)), 1, 'int'),
    ],
)
def test_output_function_is_typed_by_its_return_annotation(function: Any, output: Any, name: str) -> None:
    part: Any = single_part(function, output)
    assert part['metadata'] == {
        'json_schema': Agent('test', output_type=function).output_json_schema(),
        'python_type': name,
    }


@pytest.mark.parametrize(
    ('spec', 'text', 'streams'),
    [
        (str, True, True),
        ([Weather, str], True, True),
        (str | None, True, True),
        ([[int, str]], True, True),
        (shout, True, False),
        (untyped, True, False),
        (TextOutput(shout), True, False),
        (ToolOutput(str), True, False),
        (TextOutput(count), False, False),
        (Weather, False, False),
        (Annotated[str, Field(max_length=3)], False, False),
    ],
)
def test_text_is_streamed_only_as_unmodified_output(spec: Any, text: bool, streams: bool) -> None:
    mapper = OutputMapper(spec)
    assert (mapper.text, mapper.streams_text) == (text, streams)


def report() -> Artifacts:
    return Artifacts(a=1)


def test_output_modes_follow_the_output_type() -> None:
    specs: dict[str, Any] = {
        'text': str,
        'data': Weather,
        'both': [Weather, str],
        'image': BinaryImage,
        'image or text': [BinaryImage, str],
        'images': list[BinaryImage],
        'pair of files': tuple[BinaryAudio, BinaryContent],
        'files of unknown number': tuple[BinaryContent, ...],
        'files beside data': tuple[BinaryImage, int],
        'artifacts': report,
        'nothing': DeferredToolRequests,
    }
    assert {name: OutputMapper(spec).modes for name, spec in specs.items()} == snapshot(
        {
            'text': ['text/plain'],
            'data': ['application/json'],
            'both': ['text/plain', 'application/json'],
            'image': ['image/jpeg', 'image/png', 'image/gif', 'image/webp'],
            'image or text': ['text/plain', 'image/jpeg', 'image/png', 'image/gif', 'image/webp'],
            'images': ['image/jpeg', 'image/png', 'image/gif', 'image/webp'],
            'pair of files': ['audio/wav', 'audio/mpeg', 'application/octet-stream'],
            'files of unknown number': ['application/octet-stream'],
            'files beside data': ['application/json'],
            'artifacts': ['text/plain', 'application/json'],
            'nothing': ['text/plain'],
        }
    )


Person = StructuredDict({'type': 'object', 'title': 'Person', 'properties': {'name': {'type': 'string'}}})
Anything = StructuredDict({'type': 'object'})
Answer = Choices(['yes', 'no'], name='Answer')
Action = Choices({'now': Choice('Do it.', value=lambda: 5)}, name='Action')


def test_dynamically_created_types_have_readable_names() -> None:
    assert result_and_type(Person, {'name': 'Ada'}) == [({'name': 'Ada'}, 'Person')]
    assert result_and_type(Anything, {'a': 1}) == [({'a': 1}, 'dict')]
    assert result_and_type([Person, Answer], 'no', {'name': 'Ada'}) == [('no', 'Answer'), ({'name': 'Ada'}, 'Person')]
    assert result_and_type(Action, 5) == [(5, 'Action')]


def test_python_type_is_named_like_its_annotation() -> None:
    def mapping() -> dict[str, Sequence[Weather | None]]: ...
    def pair() -> tuple[Literal['a', 1], ...]: ...
    def marked() -> Annotated[list[Point], Field(max_length=3)]: ...
    def call() -> Callable[..., int]: ...

    values: list[tuple[Any, Any]] = [(mapping, {'a': [None]}), (pair, ('a',)), (marked, [Point(1)]), (call, 1)]
    assert [result_and_type(function, value)[0][1] for function, value in values] == snapshot(
        ['dict[str, Sequence[Weather | None]]', "tuple[Literal['a', 1], ...]", 'list[Point]', 'Callable[..., int]']
    )


def test_unknown_output_class_is_refused_only_when_returned() -> None:
    def handle() -> Handle: ...

    mapper = OutputMapper([handle, int])
    assert mapper.artifacts(3, artifact_id='r')[0]['parts'][0].get('data') == {'result': 3}
    with pytest.raises(UnserializableOutput) as refused:
        mapper.artifacts(Handle(), artifact_id='r')
    assert str(refused.value) == 'The output, Handle for Handle, cannot be written as JSON.'
