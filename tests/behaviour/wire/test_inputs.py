"""What a client sends, as the agent's model gets it."""

from __future__ import annotations

import json
from base64 import b64encode
from itertools import product
from typing import Any

import pytest
from fasta2a.schema import Skill
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.messages import (
    AudioUrl,
    BinaryContent,
    BinaryImage,
    DocumentUrl,
    FilePart,
    FileUrl,
    ImageUrl,
    ModelMessage,
    ModelResponse,
    StructuredContent,
    SystemPromptPart,
    TextPart,
    UserPromptPart,
    VideoUrl,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.output import TextOutput
from pydantic_ai.profiles import ModelProfile

from ...app_client import RpcError, message, rpc, state_of, texts
from ...cases import each_case
from ...dialects import current_dialect, in_no_version, only_in
from ...serving import serving
from ..promised_behaviours import covers
from ..refusals import error_of_answer, send_body, serving_without_runs

PNG = b'\x89PNG\r\n\x1a\n' + bytes(8)
MP4 = bytes.fromhex('00000018') + b'ftypmp42' + bytes(12)
PDF = b'%PDF-1.7\n%\xe2\xe3'
WAV = b'RIFF\x24\0\0\0WAVEfmt '
MP3 = b'ID3\x04\0\0\0\0\0\0'
INSTRUCTION = b'\x12\x07\n\x05hello'
"""A binary message of protobuf, as a conformance kit of A2A sends it."""
JPEG, GIF, WEBP = b'\xff\xd8\xff\xe0' + bytes(8), b'GIF89a' + bytes(8), b'RIFF\x24\0\0\0WEBPVP8 '


def raw(data: bytes, **fields: str) -> dict[str, str]:
    return {'raw': b64encode(data).decode(), **fields}


def prompts(messages: list[ModelMessage]) -> list[Any]:
    """The contents of all user prompts."""
    return [part.content for each in messages for part in each.parts if isinstance(part, UserPromptPart)]


async def prompts_for_parts(*parts: dict[str, Any], profile: ModelProfile | None = None, **options: Any) -> list[Any]:
    """The user prompts of the run that a message with these parts starts."""
    seen: list[Any] = []

    async def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        seen.extend(prompts(messages))
        return ModelResponse(parts=[TextPart('done')])

    async with serving(Agent(FunctionModel(answer, profile=profile)), **options) as client:
        task = await client.send(message(parts=list(parts)))
    assert state_of(task) == 'COMPLETED'
    assert task['history'][0]['parts'] == list(parts)
    return seen


@covers('several text parts')
async def test_text_parts_form_a_prompt_in_order() -> None:
    assert await prompts_for_parts({'text': 'one'}, {'text': 'two'}, {'text': ''}, {'text': 'three'}) == [
        ['one', 'two', '', 'three']
    ]


@in_no_version('the codecs have properties of their own')
@covers('several text parts')
@given(parts=st.lists(st.text(st.characters(codec='utf-8', exclude_characters='\0')), min_size=1, max_size=4))
async def test_any_text_round_trips_through_agent(parts: list[str]) -> None:
    async def echo(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        [content] = prompts(messages)
        return ModelResponse(parts=[TextPart(json.dumps([content] if isinstance(content, str) else content))])

    async with serving(Agent(FunctionModel(echo))) as client:
        sent = [{'text': text} for text in parts]
        task = await client.send(message(parts=sent))
        read = await client.get_task(task['id'])
    assert json.loads(texts(task)[0]) == parts
    assert read['history'][0]['parts'] == sent


@covers('data part')
async def test_data_part_reaches_model_as_structured_content() -> None:
    data = {'city': 'Paris', 'days': [1, 2.5, None, True]}
    assert await prompts_for_parts({'text': 'weather'}, {'data': data}) == [
        ['weather', StructuredContent(data, tag='data_part')]
    ]


JSON_NUMBERS = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
JSON_TEXT = st.text(st.characters(codec='utf-8', exclude_characters='\0'))
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | JSON_NUMBERS | JSON_TEXT,
    lambda items: st.lists(items, max_size=3) | st.dictionaries(JSON_TEXT, items, max_size=3),
    max_leaves=8,
)


@in_no_version('the codecs have properties of their own')
@covers('data part', 'model, dataclass, tuple, list, dict, int, None, union')
@given(data=JSON)
async def test_any_json_data_round_trips_through_agent(data: Any) -> None:
    kept: list[Any] = []

    async def keep(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        [[content]] = prompts(messages)
        kept.append(content.value)
        return ModelResponse(parts=[TextPart('kept')])

    async def hand_back(_: str) -> object:
        return kept[0]

    async with serving(Agent(FunctionModel(keep), output_type=TextOutput(hand_back))) as client:
        task = await client.send(message(parts=[{'data': data}]))
    assert task['history'][0]['parts'] == [{'data': data}]
    assert task['artifacts'][0]['parts'][0]['data'] == {'result': data}


BYTES_OF_TYPES = [
    (PNG, 'image/png'),
    (JPEG, 'image/jpeg'),
    (GIF, 'image/gif'),
    (WEBP, 'image/webp'),
    (PDF, 'application/pdf'),
    (WAV, 'audio/wav'),
    (MP3, 'audio/mpeg'),
    (MP4, 'video/mp4'),
    ('Grüße'.encode(), 'text/plain'),
]


@covers('raw without media type / text file')
@each_case('fields', [{}, {'mediaType': 'application/octet-stream'}])
async def test_file_without_media_type_is_recognized_by_bytes(fields: dict[str, str]) -> None:
    [files] = await prompts_for_parts(*(raw(data, **fields) for data, _ in BYTES_OF_TYPES))
    assert [(file.data, file.media_type, isinstance(file, BinaryImage)) for file in files] == [
        (data, media_type, media_type.startswith('image/')) for data, media_type in BYTES_OF_TYPES
    ]


@covers('raw without media type / text file')
async def test_text_file_is_inlined_for_model_without_documents() -> None:
    [[text]] = await prompts_for_parts(
        raw(b'a,b\n1,2\n', mediaType='text/csv'), profile={'supports_document_input': False}
    )
    assert text == snapshot("""\
-----BEGIN FILE id="2aa26e" type="text/csv"-----
a,b
1,2

-----END FILE id="2aa26e"-----\
""")


UNUSABLE_FILES: dict[str, tuple[dict[str, str], int, str]] = {
    'unknown bytes': (raw(b'\xfe\xed\0\xff'), -32005, 'message.parts[0].raw'),
    'bad base64': ({'raw': 'not base64!'}, -32602, 'message.parts[0].raw'),
    'bad media type': (raw(PNG, mediaType='png'), -32602, 'message.parts[0].mediaType'),
    'image': (raw(PNG), -32005, 'message.parts[0].raw'),
    'declared image': (raw(PNG, mediaType='image/png'), -32005, 'message.parts[0].mediaType'),
    'document': (raw(PDF), -32005, 'message.parts[0].raw'),
    'video by its url': ({'url': 'https://example.com/a.mp4'}, -32005, 'message.parts[0].url'),
    'url of unknown type': ({'url': 'https://example.com/a'}, -32005, 'message.parts[0].url'),
    'declared type of no model': (
        raw(INSTRUCTION, mediaType='application/x-protobuf'),
        -32005,
        'message.parts[0].mediaType',
    ),
}


@covers('raw without media type / text file')
async def test_unusable_file_part_is_refused_before_run(subtests: pytest.Subtests) -> None:
    deaf = ModelProfile(supports_image_input=False, supports_document_input=False, supports_video_input=False)
    async with serving_without_runs(profile=deaf) as client:
        for case, (part, code, field) in UNUSABLE_FILES.items():
            with subtests.test(case):
                error = error_of_answer(await client.post(send_body(parts=[part])))
                assert error.code == code
                assert current_dialect().field(field) in error.message


WRONG_TYPES: list[tuple[dict[str, Any], int, str]] = [
    ({'text': 'hello', 'mediaType': 'image/png'}, -32005, 'image/png is not supported for text'),
    ({'text': '', 'mediaType': 'Application/PDF; x=1'}, -32005, 'application/pdf is not supported for text'),
    ({'data': {}, 'mediaType': 'application/x-unknown'}, -32005, 'application/x-unknown is not supported for data'),
    ({'data': None, 'mediaType': 'audio/wav'}, -32005, 'audio/wav is not supported for data'),
    ({'text': 'hello', 'mediaType': 'plain'}, -32602, 'must be a media type, such as image/png'),
    ({'data': 1, 'mediaType': 'json'}, -32602, 'must be a media type, such as image/png'),
]

PARTS_BEFORE: list[list[dict[str, str]]] = [[], [{'text': 'first'}, {'text': 'second', 'mediaType': 'text/markdown'}]]


@only_in('1.0', 'parts of 0.3 have no media type besides files')
async def test_text_and_data_with_wrong_media_type_are_refused(subtests: pytest.Subtests) -> None:
    async with serving_without_runs() as client:
        for (part, code, problem), before in product(WRONG_TYPES, PARTS_BEFORE):
            with subtests.test(part=part, before=before):
                error = error_of_answer(await client.post(send_body(parts=[*before, part])))
                streamed = error_of_answer(
                    await client.post(rpc('SendStreamingMessage', {'message': message(parts=[*before, part])}))
                )
                assert error.code == streamed.code == code
                assert f'message.parts[{len(before)}].mediaType: {problem}' in error.message


@only_in('1.0', 'parts of 0.3 have no media type besides files')
async def test_text_and_data_may_have_textual_media_types() -> None:
    types = ('text/html; charset=utf-8', 'TEXT/MARKDOWN', 'application/json', 'application/octet-stream', 'text/csv')
    [[*texts]] = await prompts_for_parts(*({'text': name, 'mediaType': name} for name in types))
    assert texts == [*types]
    data_types = ('application/json', 'application/vnd.example+json', 'application/yaml')
    [[*data]] = await prompts_for_parts(*({'data': name, 'mediaType': name} for name in data_types))
    assert [each.value for each in data] == [*data_types]


URL_PARTS: list[tuple[dict[str, str], FileUrl]] = [
    ({'url': 'https://example.com/a.png'}, ImageUrl('https://example.com/a.png', media_type='image/png')),
    ({'url': 'https://example.com/a.mp4?x=1'}, VideoUrl('https://example.com/a.mp4?x=1', media_type='video/mp4')),
    ({'url': 'https://example.com/a.mp3'}, AudioUrl('https://example.com/a.mp3', media_type='audio/mpeg')),
    ({'url': 'https://example.com/a.pdf'}, DocumentUrl('https://example.com/a.pdf', media_type='application/pdf')),
    (
        {'url': 'https://example.com/a', 'mediaType': 'image/webp'},
        ImageUrl('https://example.com/a', media_type='image/webp'),
    ),
    (
        {'url': 'https://example.com/a.png', 'mediaType': 'application/pdf'},
        DocumentUrl('https://example.com/a.png', media_type='application/pdf'),
    ),
]


@covers('url part with media type; .png; .mp4')
async def test_url_part_becomes_file_of_its_media_type() -> None:
    [links] = await prompts_for_parts(*(part for part, _ in URL_PARTS))
    assert [(type(link), link.url, link.media_type) for link in links] == [
        (type(link), link.url, link.media_type) for _, link in URL_PARTS
    ]


FORBIDDEN_URLS = [
    'file:///etc/passwd',
    'ftp://example.com/a.png',
    'data:image/png;base64,AAAA',
    'gopher://example.com/a.png',
    'http://localhost/a.png',
    'http://127.0.0.1:8000/a.png',
    'http://127.1/a.png',
    'http://0x7f000001/a.png',
    'http://[::1]/a.png',
    'http://10.0.0.1/a.png',
    'http://192.168.1.1/a.png',
    'http://169.254.169.254/latest/meta-data/a.png',
    'http://[fd00::1]/a.png',
    'http://[::ffff:127.0.0.1]/a.png',
    'http://user:password@example.com/a.png',
    'a.png',
]


@covers('url part with media type; .png; .mp4')
async def test_forbidden_file_url_is_refused(subtests: pytest.Subtests) -> None:
    async with serving_without_runs() as client:
        for url in FORBIDDEN_URLS:
            with subtests.test(url):
                error = error_of_answer(await client.post(send_body(parts=[{'url': url, 'mediaType': 'image/png'}])))
                assert (error.code, error.fields) == (-32602, ['message.parts[0].url'])
                assert 'password' not in error.message


DECLARED_MODES = ['application/x-protobuf', 'Application/VND.acme+json; v=1', 'image/*', 'text/plain']


async def test_declared_file_type_reaches_model_as_bytes() -> None:
    instruction = raw(INSTRUCTION, mediaType='application/x-protobuf', filename='instruction.bin')
    url = {'url': 'https://example.com/a.bin', 'mediaType': 'application/x-protobuf'}
    blind = ModelProfile(supports_image_input=False, supports_document_input=False)
    [prompt] = await prompts_for_parts(instruction, url, raw(PNG), profile=blind, default_input_modes=DECLARED_MODES)
    assert prompt == [
        BinaryContent(INSTRUCTION, media_type='application/x-protobuf', identifier='instruction.bin'),
        DocumentUrl('https://example.com/a.bin', media_type='application/x-protobuf', force_download=True),
        BinaryImage(PNG, media_type='image/png'),
    ]


async def test_octet_stream_file_is_accepted_when_declared() -> None:
    unknown = raw(b'\0\1', mediaType='application/octet-stream', filename='a.bin')
    url = {'url': 'https://example.com/a', 'mediaType': 'application/octet-stream'}
    [prompt] = await prompts_for_parts(unknown, url, default_input_modes=['application/octet-stream'])
    assert prompt == [
        BinaryContent(b'\0\1', media_type='application/octet-stream', identifier='a.bin'),
        DocumentUrl('https://example.com/a', media_type='application/octet-stream', force_download=True),
    ]


@only_in('1.0', 'text and data of 0.3 have no media type')
async def test_declared_text_and_data_types_reach_model() -> None:
    parts = [
        {'data': {'a': 1}, 'mediaType': 'application/vnd.acme+json'},
        {'data': {'b': 2}, 'mediaType': 'application/x-protobuf'},
        {'text': 'EgcKBWhlbGxv', 'mediaType': 'application/x-protobuf'},
    ]
    [[first, second, third]] = await prompts_for_parts(*parts, default_input_modes=DECLARED_MODES)
    assert (first.value, second.value, third) == ({'a': 1}, {'b': 2}, 'EgcKBWhlbGxv')


ACME = 'application/vnd.acme+json'
SKILL = Skill(id='s', name='S', description='S.', tags=['s'], input_modes=[ACME], output_modes=['text/plain'])
ACCEPTED_TYPES = 'is not supported. This agent takes application/x-protobuf, image/*, application/vnd.acme+json.'
UNDECLARED: list[tuple[dict[str, Any], str, str]] = [
    ({'text': 'Hi'}, '', 'text/plain'),
    ({'data': {'a': 1}}, '', 'application/json'),
    (raw(PDF), '.raw', 'application/pdf'),
    (raw(b'a,b', mediaType='text/csv'), '.mediaType', 'text/csv'),
    (raw(b'{}', mediaType='application/json'), '.mediaType', 'application/json'),
    (raw(b'Hi'), '.raw', 'text/plain'),
    ({'url': 'https://example.com/a.pdf'}, '.url', 'application/pdf'),
    ({'url': 'https://example.com/a', 'mediaType': 'text/plain'}, '.mediaType', 'text/plain'),
]


async def test_undeclared_media_type_is_refused_by_name(subtests: pytest.Subtests) -> None:
    async with serving(
        Agent('test'), default_input_modes=['application/x-protobuf', 'image/*'], skills=[SKILL]
    ) as client:
        card = (await client.get('/.well-known/agent-card.json')).json
        assert card['defaultInputModes'] == ['application/x-protobuf', 'image/*']
        for part, field, name in UNDECLARED:
            with subtests.test(name, part=part):
                error = error_of_answer(await client.post(send_body(parts=[part])))
                assert (error.code, error.reason) == (-32005, 'CONTENT_TYPE_NOT_SUPPORTED')
                place = current_dialect().field(f'message.parts[0]{field}')
                assert error.message == current_dialect().text(f'{place}: {name} {ACCEPTED_TYPES}')
        await client.send(message(parts=[raw(b'{}', mediaType=ACME)]))


@only_in('1.0', 'text and data of 0.3 have no media type')
async def test_undeclared_text_and_data_types_are_refused() -> None:
    async with serving(Agent('test'), default_input_modes=['text/plain', ACME]) as client:
        for kind, name in (('text', 'text/markdown'), ('data', 'application/json')):
            error = error_of_answer(await client.post(send_body(parts=[{kind: '{}', 'mediaType': name}])))
            assert error.message == (
                f'message.parts[0].mediaType: {name} is not supported. This agent takes text/plain, {ACME}.'
            )
            assert error.data[0]['metadata']['field'] == 'message.parts[0].mediaType'


async def test_waiting_task_accepts_text_despite_file_only_modes() -> None:
    agent = Agent('test', output_type=[str, DeferredToolRequests])

    @agent.tool_plain(requires_approval=True)
    def delete() -> str:
        return 'Gone.'

    image = raw(PNG, mediaType='image/png')
    async with serving(agent, default_input_modes=['image/png']) as client:
        task = await client.send(message(parts=[image]))
        assert state_of(task) == 'INPUT_REQUIRED'
        with pytest.raises(RpcError, match=r': application/pdf is not supported\. This agent takes image/png'):
            await client.send(message(parts=[raw(PDF)], taskId=task['id'], contextId=task['contextId']))
        done = await client.send(message('no', taskId=task['id'], contextId=task['contextId']))
        assert state_of(done) == 'COMPLETED'


async def test_referenced_artifact_reaches_model_despite_declared_modes() -> None:
    seen: list[Any] = []

    async def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        seen.extend(prompts(messages))
        return ModelResponse(parts=[FilePart(BinaryImage(PNG, media_type='image/png')), TextPart('Drawn.')])

    async with serving(Agent(FunctionModel(answer)), default_input_modes=['text/plain']) as client:
        first = await client.send('draw')
        await client.send(message('again', referenceTaskIds=[first['id']]))
    assert BinaryImage(PNG, media_type='image/png') in seen[1]


@covers('`system_prompt=`')
async def test_every_turn_has_system_prompt_and_instructions() -> None:
    seen: list[list[str]] = []

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        parts = [part for each in messages for part in each.parts]
        seen.append([part.content for part in parts if isinstance(part, SystemPromptPart)])
        return ModelResponse(parts=[TextPart(info.instructions or '')])

    async with serving(Agent(FunctionModel(answer), system_prompt='Be short.', instructions='Be kind.')) as client:
        first = await client.send()
        second = await client.send(message('again', contextId=first['contextId']))
    assert seen == [['Be short.'], ['Be short.']]
    assert texts(first) == texts(second) == ['Be kind.']
