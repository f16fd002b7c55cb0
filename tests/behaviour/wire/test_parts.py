"""What a client sends, as the agent's model gets it."""

from __future__ import annotations

import json
from base64 import b64encode
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot
from pydantic_ai import Agent
from pydantic_ai.messages import (
    AudioUrl,
    BinaryContent,
    BinaryImage,
    DocumentUrl,
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

from pydantic_ai_a2a import to_a2a

from ...client import Client, RpcError, lifespan, message, rpc, state_of, texts
from ...dialects import only, spoken
from ..refused import refusal, send, untouched
from ..rows import covers

PNG = b'\x89PNG\r\n\x1a\n' + bytes(8)
MP4 = bytes.fromhex('00000018') + b'ftypmp42' + bytes(12)
PDF = b'%PDF-1.7\n%\xe2\xe3'
WAV = b'RIFF\x24\0\0\0WAVEfmt '
MP3 = b'ID3\x04\0\0\0\0\0\0'
JPEG, GIF, WEBP = b'\xff\xd8\xff\xe0' + bytes(8), b'GIF89a' + bytes(8), b'RIFF\x24\0\0\0WEBPVP8 '


def raw(data: bytes, **fields: str) -> dict[str, str]:
    return {'raw': b64encode(data).decode(), **fields}


def prompts(messages: list[ModelMessage]) -> list[Any]:
    """The contents of all user prompts."""
    return [part.content for each in messages for part in each.parts if isinstance(part, UserPromptPart)]


async def prompts_of(*parts: dict[str, Any], profile: ModelProfile | None = None) -> list[Any]:
    """The user prompts of the run that a message with these parts starts."""
    seen: list[Any] = []

    async def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        seen.extend(prompts(messages))
        return ModelResponse(parts=[TextPart('done')])

    app = to_a2a(Agent(FunctionModel(answer, profile=profile)))
    async with lifespan(app):
        task = await Client(app).send(message(parts=list(parts)))
    assert state_of(task) == 'COMPLETED'
    assert task['history'][0]['parts'] == list(parts)
    return seen


@covers('several text parts')
async def test_several_text_parts_are_one_prompt_in_their_order() -> None:
    assert await prompts_of({'text': 'one'}, {'text': 'two'}, {'text': ''}, {'text': 'three'}) == [
        ['one', 'two', '', 'three']
    ]


@covers('several text parts')
@given(parts=st.lists(st.text(st.characters(codec='utf-8', exclude_characters='\0')), min_size=1, max_size=4))
async def test_any_text_that_goes_in_comes_out(parts: list[str]) -> None:
    async def echo(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        [content] = prompts(messages)
        return ModelResponse(parts=[TextPart(json.dumps([content] if isinstance(content, str) else content))])

    app = to_a2a(Agent(FunctionModel(echo)))
    async with lifespan(app):
        sent = [{'text': text} for text in parts]
        task = await Client(app).send(message(parts=sent))
        read = await Client(app).get_task(task['id'])
    assert json.loads(texts(task)[0]) == parts
    assert read['history'][0]['parts'] == sent


@covers('data part')
async def test_a_data_part_reaches_the_model_as_structured_content() -> None:
    data = {'city': 'Paris', 'days': [1, 2.5, None, True]}
    assert await prompts_of({'text': 'weather'}, {'data': data}) == [
        ['weather', StructuredContent(data, tag='data_part')]
    ]


JSON_NUMBERS = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
JSON_TEXT = st.text(st.characters(codec='utf-8', exclude_characters='\0'))
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | JSON_NUMBERS | JSON_TEXT,
    lambda items: st.lists(items, max_size=3) | st.dictionaries(JSON_TEXT, items, max_size=3),
    max_leaves=8,
)


@covers('data part', 'model, dataclass, tuple, list, dict, int, None, union')
@given(data=JSON)
async def test_any_data_that_goes_in_comes_out(data: Any) -> None:
    kept: list[Any] = []

    async def keep(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        [[content]] = prompts(messages)
        kept.append(content.value)
        return ModelResponse(parts=[TextPart('kept')])

    async def hand_back(_: str) -> object:
        return kept[0]

    app = to_a2a(Agent(FunctionModel(keep), output_type=TextOutput(hand_back)))
    async with lifespan(app):
        task = await Client(app).send(message(parts=[{'data': data}]))
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
async def test_a_file_without_a_type_is_known_by_its_bytes(subtests: pytest.Subtests) -> None:
    for data, media_type in BYTES_OF_TYPES:
        with subtests.test(media_type):
            for sent in (raw(data), raw(data, mediaType='application/octet-stream')):
                [[file]] = await prompts_of(sent)
                assert isinstance(file, BinaryContent)
                assert (file.data, file.media_type) == (data, media_type)
                assert isinstance(file, BinaryImage) == media_type.startswith('image/')


@covers('raw without media type / text file')
async def test_a_text_file_is_in_the_prompt_of_a_model_that_takes_none() -> None:
    [[text]] = await prompts_of(raw(b'a,b\n1,2\n', mediaType='text/csv'), profile={'supports_document_input': False})
    assert text == snapshot("""\
-----BEGIN FILE id="2aa26e" type="text/csv"-----
a,b
1,2

-----END FILE id="2aa26e"-----\
""")


NOT_TAKEN: dict[str, tuple[dict[str, str], int, str]] = {
    'unknown bytes': (raw(b'\xfe\xed\0\xff'), -32005, 'message.parts[0].raw'),
    'bad base64': ({'raw': 'not base64!'}, -32602, 'message.parts[0].raw'),
    'bad media type': (raw(PNG, mediaType='png'), -32602, 'message.parts[0].mediaType'),
    'image': (raw(PNG), -32005, 'message.parts[0].raw'),
    'declared image': (raw(PNG, mediaType='image/png'), -32005, 'message.parts[0].mediaType'),
    'document': (raw(PDF), -32005, 'message.parts[0].raw'),
    'video by its url': ({'url': 'https://example.com/a.mp4'}, -32005, 'message.parts[0].url'),
}


@covers('raw without media type / text file')
async def test_what_the_model_does_not_take_is_refused_before_anything_runs(subtests: pytest.Subtests) -> None:
    deaf = ModelProfile(supports_image_input=False, supports_document_input=False, supports_video_input=False)
    async with untouched(profile=deaf) as client:
        for case, (part, code, field) in NOT_TAKEN.items():
            with subtests.test(case):
                error = refusal(await client.post(send(parts=[part])))
                assert error.code == code
                assert spoken().field(field) in error.message


WRONG_TYPES: list[tuple[dict[str, Any], int, str]] = [
    ({'text': 'hello', 'mediaType': 'image/png'}, -32005, 'image/png is not supported for text'),
    ({'text': '', 'mediaType': 'Application/PDF; x=1'}, -32005, 'application/pdf is not supported for text'),
    ({'data': {}, 'mediaType': 'application/x-unknown'}, -32005, 'application/x-unknown is not supported for data'),
    ({'data': None, 'mediaType': 'audio/wav'}, -32005, 'audio/wav is not supported for data'),
    ({'text': 'hello', 'mediaType': 'plain'}, -32602, 'must be a media type, such as image/png'),
    ({'data': 1, 'mediaType': 'json'}, -32602, 'must be a media type, such as image/png'),
]

PARTS_BEFORE: list[list[dict[str, str]]] = [[], [{'text': 'first'}, {'text': 'second', 'mediaType': 'text/markdown'}]]


@only('1.0', 'parts of 0.3 have no media type besides files')
async def test_text_and_data_of_another_type_are_refused_before_anything_runs(subtests: pytest.Subtests) -> None:
    async with untouched() as client:
        for (part, code, problem), before in product(WRONG_TYPES, PARTS_BEFORE):
            with subtests.test(part=part, before=before):
                error = refusal(await client.post(send(parts=[*before, part])))
                streamed = refusal(
                    await client.post(rpc('SendStreamingMessage', {'message': message(parts=[*before, part])}))
                )
                assert error.code == streamed.code == code
                assert f'message.parts[{len(before)}].mediaType: {problem}' in error.message


@only('1.0', 'parts of 0.3 have no media type besides files')
async def test_text_and_data_may_say_which_kind_of_text_they_are() -> None:
    types = ('text/html; charset=utf-8', 'TEXT/MARKDOWN', 'application/json', 'application/octet-stream', 'text/csv')
    [[*texts]] = await prompts_of(*({'text': name, 'mediaType': name} for name in types))
    assert texts == [*types]
    data_types = ('application/json', 'application/vnd.example+json', 'application/yaml')
    [[*data]] = await prompts_of(*({'data': name, 'mediaType': name} for name in data_types))
    assert [each.value for each in data] == [*data_types]


@covers('url part with media type; .png; .mp4')
@pytest.mark.parametrize(
    ('part', 'expected'),
    [
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
    ],
)
async def test_a_url_is_a_file_of_the_type_it_has(part: dict[str, str], expected: Any) -> None:
    [[link]] = await prompts_of(part)
    assert type(link) is type(expected)
    assert (link.url, link.media_type) == (expected.url, expected.media_type)


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
async def test_a_url_that_nobody_should_fetch_for_a_client_is_refused(subtests: pytest.Subtests) -> None:
    async with untouched() as client:
        for url in FORBIDDEN_URLS:
            with subtests.test(url):
                error = refusal(await client.post(send(parts=[{'url': url, 'mediaType': 'image/png'}])))
                assert (error.code, error.fields) == (-32602, ['message.parts[0].url'])
                assert 'password' not in error.message


@covers('url part with media type; .png; .mp4')
async def test_a_url_of_unknown_type_is_refused() -> None:
    async with untouched() as client:
        error = refusal(await client.post(send(parts=[{'url': 'https://example.com/a'}])))
    assert (error.code, error.reason) == (-32005, 'CONTENT_TYPE_NOT_SUPPORTED')


@covers('`system_prompt=`')
async def test_a_system_prompt_is_kept_in_every_turn() -> None:
    seen: list[list[str]] = []

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        parts = [part for each in messages for part in each.parts]
        seen.append([part.content for part in parts if isinstance(part, SystemPromptPart)])
        return ModelResponse(parts=[TextPart(info.instructions or '')])

    app = to_a2a(Agent(FunctionModel(answer), system_prompt='Be short.', instructions='Be kind.'))
    async with lifespan(app):
        first = await Client(app).send()
        second = await Client(app).send(message('again', contextId=first['contextId']))
    assert seen == [['Be short.'], ['Be short.']]
    assert texts(first) == texts(second) == ['Be kind.']


async def test_a_refusal_names_the_part_that_is_wrong() -> None:
    app = to_a2a(Agent('test'))
    async with lifespan(app):
        with pytest.raises(RpcError) as refused:
            await Client(app).send(message(parts=[{'text': 'look'}, raw(PNG, mediaType='nonsense')]))
    assert refused.value.fields == ['message.parts[1].mediaType']
