from __future__ import annotations

import base64
import re
from functools import partial
from math import inf, nan
from typing import Annotated, Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot
from pydantic import AfterValidator, BaseModel, PlainSerializer
from pydantic_ai import Agent, BinaryContent, BinaryImage, StructuredContent
from pydantic_ai.messages import (
    AudioMediaType,
    AudioUrl,
    DocumentUrl,
    FileUrl,
    ImageUrl,
    VideoMediaType,
    VideoUrl,
)
from pydantic_ai.models.test import TestModel

from pydantic_ai_a2a.server.conversion.artifacts import Artifacts
from pydantic_ai_a2a.server.conversion.output_mapper import OutputMapper, text_of
from pydantic_ai_a2a.server.conversion.unwritable_outputs import NotFinite, UnserializableOutput
from pydantic_ai_a2a.server.conversion.user_prompts import user_prompt
from pydantic_ai_a2a.types import Artifact, Message, Part

from .conversion_values import ACCEPTS_ALL, WEATHER, Color, Point, Weather, artifacts, result_and_type, single_part

PNG = b'\x89PNG\r\n\x1a\n'


def result(*parts: Any) -> list[Any]:
    """The artifacts of an output that is one artifact."""
    return [{'artifact_id': 't.result', 'name': 'result', 'parts': [*parts]}]


def test_list_of_files_becomes_raw_parts_of_artifact() -> None:
    files = [BinaryContent(b'a', media_type='text/plain', identifier='a'), BinaryImage(PNG, media_type='image/png')]
    assert artifacts(list[BinaryContent], files) == result(
        {'raw': 'YQ==', 'media_type': 'text/plain', 'filename': 'a.txt'},
        {'raw': 'iVBORw0KGgo=', 'media_type': 'image/png', 'filename': '4caece.png'},
    )


@pytest.mark.parametrize(
    ('identifier', 'media_type', 'filename'),
    [
        ('chart', 'image/png', 'chart.png'),
        ('chart.PNG', 'image/png', 'chart.PNG'),
        ('photo.jpg', 'image/jpeg', 'photo.jpg'),
        ('paper.v2', 'application/pdf', 'paper.v2.pdf'),
        ('talk', 'audio/mpeg', 'talk.mp3'),
        ('drawing', 'image/svg+xml', 'drawing.svg'),
        ('thing', 'application/x-nothing', 'thing'),
        (None, 'image/png', 'a9993e.png'),
    ],
)
def test_filename_gets_extension_of_its_media_type(identifier: str | None, media_type: str, filename: str) -> None:
    part = single_part(BinaryContent, BinaryContent(b'abc', media_type=media_type, identifier=identifier))
    assert part.get('filename') == filename


def test_output_file_is_not_repeated_as_response_file() -> None:
    image = BinaryImage(PNG, media_type='image/png')
    other = BinaryContent(b'other', media_type='image/png')
    (artifact,) = artifacts(BinaryImage, image, BinaryContent(PNG, media_type='image/png'), other)
    assert [part.get('raw') for part in artifact['parts']] == [image.base64, other.base64]


def test_each_named_artifact_has_its_own_id() -> None:
    output = Artifacts(
        {'raw data': [1, 2]}, summary='Fine', weather=WEATHER, chart=BinaryImage(PNG, media_type='image/png')
    )
    assert artifacts(Artifacts, output, BinaryContent(b'x', media_type='text/plain', identifier='log')) == [
        {
            'artifact_id': 't.result',
            'name': 'raw data',
            'parts': [
                {
                    'data': {'result': [1, 2]},
                    'media_type': 'application/json',
                    'metadata': {'json_schema': {'items': {}, 'type': 'array'}, 'python_type': 'list'},
                },
                {'raw': 'eA==', 'media_type': 'text/plain', 'filename': 'log.txt'},
            ],
        },
        {'artifact_id': 't.result-2', 'name': 'summary', 'parts': [{'text': 'Fine', 'media_type': 'text/plain'}]},
        {'artifact_id': 't.result-3', 'name': 'weather', 'parts': [single_part(Weather, WEATHER)]},
        {
            'artifact_id': 't.result-4',
            'name': 'chart',
            'parts': [{'raw': 'iVBORw0KGgo=', 'media_type': 'image/png', 'filename': '4caece.png'}],
        },
    ]


def test_artifacts_mapping_cannot_be_empty_or_unnamed() -> None:
    output = Artifacts({'raw data': [1]}, summary='Fine')
    assert (dict(output), len(output), output['summary'], repr(output)) == snapshot(
        ({'raw data': [1], 'summary': 'Fine'}, 2, 'Fine', "Artifacts({'raw data': [1], 'summary': 'Fine'})")
    )
    for nothing in (Artifacts, partial(Artifacts, {}), partial(Artifacts, {'': 1})):
        with pytest.raises(ValueError, match='at least one artifact, and a name for each'):
            nothing()


async def test_model_can_produce_artifacts_output() -> None:
    agent = Agent(TestModel(custom_output_args={'a': 1, 'b': 'text'}), output_type=Artifacts)
    result = await agent.run('Go')
    assert result.output == Artifacts(a=1, b='text')
    assert agent.output_json_schema() == snapshot(
        {'additionalProperties': True, 'minProperties': 1, 'propertyNames': {'minLength': 1}, 'type': 'object'}
    )


def fail(value: int) -> int:
    raise RuntimeError('a secret')


@pytest.mark.parametrize(
    ('output_type', 'output'),
    [
        (bytes, b'\xff'),
        (Any, object()),
        (Annotated[int, PlainSerializer(fail)], 1),
        (Annotated[float, AfterValidator(abs)], complex),
    ],
)
def test_unserializable_output_is_refused_without_error_text(output_type: Any, output: Any) -> None:
    with pytest.raises(UnserializableOutput) as refused:
        artifacts(output_type, output)
    assert 'secret' not in str(refused.value)


class Measured(BaseModel):
    values: dict[str, float | None]
    note: Any = None
    safe: Annotated[float, PlainSerializer(str, when_used='json')] = nan


@pytest.mark.parametrize(
    ('output_type', 'output', 'where'),
    [
        (float, nan, 'result'),
        (list[float | None], [None, 1.0, -inf], 'result[2]'),
        (Measured, Measured(values={'a': None, 'b': inf}), "result['values']['b']"),
        (Measured, Measured(values={}, note=[{'x': (1, nan)}]), "result['note'][0]['x'][1]"),
        (dict[str, Any], {'a': nan}, "result['a']"),
        (Any, [inf], 'result[0]'),
        (Any, {'a': {None: 1, nan: 2}}, "result['a'][nan]"),
        (dict[Any, int], {-inf: 1}, 'result[-inf]'),
        (Artifacts, Artifacts(good=1.0, bad=nan), 'result'),
    ],
)
def test_nan_or_infinity_in_output_is_refused_by_path(output_type: Any, output: Any, where: str) -> None:
    with pytest.raises(NotFinite, match=rf'^{re.escape(where)} of the output is NaN or infinite'):
        artifacts(output_type, output)


def test_null_and_custom_serialized_nan_are_allowed() -> None:
    output = Measured(values={'a': None, 'b': 1.5}, note={1, 2})
    [(written, _)] = result_and_type(Measured, output)
    assert written == {'values': {'a': None, 'b': 1.5}, 'note': [1, 2], 'safe': 'nan'}
    [(written, _)] = result_and_type(dict[Any, Any], {None: 1, 1.5: 'None'})
    assert written == {'None': 1, '1.5': 'None'}


@pytest.mark.parametrize(
    ('file', 'part'),
    [
        (ImageUrl('https://x.io/a.png'), {'url': 'https://x.io/a.png', 'media_type': 'image/png'}),
        (
            DocumentUrl('https://x.io/a', media_type='application/pdf', identifier='report.pdf'),
            {'url': 'https://x.io/a', 'media_type': 'application/pdf', 'filename': 'report.pdf'},
        ),
        (AudioUrl('https://x.io/a.mp3'), {'url': 'https://x.io/a.mp3', 'media_type': 'audio/mpeg'}),
        (VideoUrl('https://x.io/a.webm'), {'url': 'https://x.io/a.webm', 'media_type': 'video/webm'}),
        (DocumentUrl('https://x.io/a'), {'url': 'https://x.io/a'}),
    ],
)
def test_file_url_output_is_a_url_part(file: FileUrl, part: Part) -> None:
    assert single_part(type(file), file) == part
    assert [each['parts'] for each in artifacts(Artifacts, Artifacts(a=file, b=[file, file]))] == [[part], [part] * 2]


@pytest.mark.parametrize(
    ('output_type', 'modes'),
    [
        (ImageUrl, ['image/jpeg', 'image/png', 'image/gif', 'image/webp']),
        (list[ImageUrl | BinaryImage], ['image/jpeg', 'image/png', 'image/gif', 'image/webp']),
        (DocumentUrl, ['application/octet-stream']),
        (AudioUrl | None, ['application/json', *get_args(AudioMediaType)]),
        (list[VideoUrl], [*get_args(VideoMediaType)]),
        (list[VideoUrl | str], ['application/json']),
    ],
)
def test_file_url_output_types_decide_output_modes(output_type: Any, modes: list[str]) -> None:
    assert OutputMapper(output_type).modes == modes


def test_output_of_undeclared_type_is_serialized_as_itself() -> None:
    def untyped(text: str):
        return text

    assert result_and_type(untyped, Point(1)) == snapshot([({'x': 1, 'y': 0}, 'Point')])
    assert single_part(BinaryImage, 'no image').get('text') == 'no image'


def test_empty_list_of_files_is_data_part() -> None:
    assert result_and_type(list[BinaryImage], []) == [([], 'list')]


def test_only_plain_strings_count_as_text_output() -> None:
    assert [text_of(output) for output in ('Hi', '', Color.RED, 1, None, WEATHER)] == ['Hi', '', None, None, None, None]


def read_by_another_agent(artifact: Artifact) -> Any:
    """What another agent's model gets when the artifact is sent to it."""
    return user_prompt(Message(role='user', message_id='m', parts=artifact['parts']), ACCEPTS_ALL)


@given(st.text())
def test_text_artifact_is_read_back_unchanged(text: str) -> None:
    assert read_by_another_agent(artifacts(str, text)[0]) == text


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=20,
    )
)
def test_data_artifact_is_read_back_unchanged(value: Any) -> None:
    (content,) = read_by_another_agent(artifacts(Any, value)[0])
    assert isinstance(content, StructuredContent)
    assert content.value == {'result': value}


@given(
    st.binary(),
    st.sampled_from(['image/png', 'application/pdf', 'audio/wav', 'video/mp4']),
    st.from_regex('[a-z]+', fullmatch=True),
)
def test_file_artifact_is_read_back_unchanged(data: bytes, media_type: str, name: str) -> None:
    file = BinaryContent.narrow_type(BinaryContent(data, media_type=media_type, identifier=name))
    (content,) = read_by_another_agent(artifacts(BinaryContent, file)[0])
    assert content == file
    assert content.identifier == f'{name}.{file.format}'
    assert base64.b64encode(content.data).decode() == file.base64
