from __future__ import annotations

import re
import sys
from functools import cached_property
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot
from pydantic_ai.messages import (
    BinaryContent,
    BinaryImage,
    DocumentMediaType,
    ImageUrl,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    StructuredContent,
    UserPromptPart,
)
from pydantic_ai.models import Model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.profiles import DEFAULT_PROFILE, ModelProfile

from pydantic_ai_a2a.errors import A2AError, ContentTypeNotSupportedError, InvalidParamsError
from pydantic_ai_a2a.server.conversion.accepted_content import Accepts
from pydantic_ai_a2a.server.conversion.model_history import model_messages
from pydantic_ai_a2a.server.conversion.model_profiles import accepts, resolve_profile
from pydantic_ai_a2a.server.conversion.user_prompts import check_parts, user_prompt
from pydantic_ai_a2a.types import Message, Part

from .conversion_values import ACCEPTS_ALL, ACCEPTS_TEXT, MP4, PDF, PNG, WAV, base64_of, message


def prompt_content(part: Part, takes: Accepts = ACCEPTS_ALL) -> Any:
    """What a message of one part is for the model; `check_parts` refuses the same messages."""
    try:
        prompt = user_prompt(message(part), takes)
    except A2AError as refused:
        with pytest.raises(type(refused), match=f'^{re.escape(refused.message)}$'):
            check_parts(message(part), takes)
        raise
    check_parts(message(part), takes)
    return prompt if isinstance(prompt, str) else prompt[0]


def test_single_text_part_becomes_a_string_prompt() -> None:
    assert user_prompt(message(Part(text='Hi')), ACCEPTS_ALL) == 'Hi'


def test_message_parts_become_a_prompt_in_order() -> None:
    prompt = user_prompt(
        message(
            Part(text='Compare'),
            Part(raw=base64_of(PNG), filename='a.png'),
            Part(text='with'),
            Part(url='https://example.com/b.jpg'),
            Part(data={'strict': True}),
        ),
        ACCEPTS_ALL,
    )
    assert prompt == snapshot(
        [
            'Compare',
            BinaryImage(data=b'\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR', media_type='image/png', _identifier='a.png'),
            'with',
            ImageUrl(url='https://example.com/b.jpg', force_download=True, _media_type='image/jpeg'),
            StructuredContent(
                content='<data_part>{"strict":true}</data_part>', value={'strict': True}, tag='data_part'
            ),
        ]
    )


@pytest.mark.parametrize(
    ('data', 'media_type'), [(PNG, 'image/png'), (PDF, 'application/pdf'), (WAV, 'audio/wav'), (MP4, 'video/mp4')]
)
@pytest.mark.parametrize('declared', [None, '', 'application/octet-stream'])
def test_media_type_of_undeclared_file_is_detected(data: bytes, media_type: str, declared: str | None) -> None:
    part = Part(raw=base64_of(data))
    if declared is not None:
        part['media_type'] = declared
    assert prompt_content(part) == BinaryContent.narrow_type(BinaryContent(data, media_type=media_type))


def test_declared_media_type_overrides_detection() -> None:
    assert prompt_content(Part(raw=base64_of(b'...'), media_type='Image/PNG')) == BinaryImage(
        b'...', media_type='image/png'
    )


def test_image_part_keeps_its_filename_as_identifier() -> None:
    image = prompt_content(Part(raw=base64_of(PNG), filename='chart.png'))
    assert isinstance(image, BinaryImage)
    assert image.identifier == 'chart.png'


@pytest.mark.parametrize('filename', ['', 'a"b.png', 'a\nb.png', 256 * 'a'])
def test_unsafe_filename_is_not_used_as_identifier(filename: str) -> None:
    assert (
        prompt_content(Part(raw=base64_of(PNG), filename=filename)).identifier
        == BinaryContent(PNG, media_type='').identifier
    )


def test_text_file_reaches_model_with_document_support() -> None:
    assert prompt_content(Part(raw=base64_of(b'a,b'), media_type='text/csv')) == BinaryContent(
        b'a,b', media_type='text/csv'
    )


def test_text_formats_no_model_supports_are_inlined() -> None:
    parts = [
        Part(raw=base64_of(b'a: 1'), media_type='application/yaml'),
        Part(raw=base64_of(b'<svg/>'), media_type='image/svg+xml', filename='i.svg'),
        Part(raw=base64_of(b'\xef\xbb\xbf{}'), media_type='application/json'),
    ]
    assert user_prompt(message(*parts), ACCEPTS_ALL) == snapshot(
        [
            """\
-----BEGIN FILE id="b26f75" type="application/yaml"-----
a: 1
-----END FILE id="b26f75"-----\
""",
            """\
-----BEGIN FILE id="i.svg" type="image/svg+xml"-----
<svg/>
-----END FILE id="i.svg"-----\
""",
            """\
-----BEGIN FILE id="1284e1" type="application/json"-----
{}
-----END FILE id="1284e1"-----\
""",
        ]
    )


@pytest.mark.parametrize(
    'charset',
    [
        *('UTF-8', 'utf8', 'utf_16', 'UTF-16BE', 'utf-32', 'ISO-8859-1', 'latin1', 'ISO_8859-15', 'windows-1252'),
        *('cp1257', 'iso-8859-10', 'GBK', 'gb18030'),
    ],
)
def test_text_file_is_converted_to_utf_8(charset: str) -> None:
    part = Part(raw=base64_of('ü'.encode(charset)), media_type=f'text/plain; charset={charset}')
    assert prompt_content(part) == BinaryContent('ü'.encode(), media_type='text/plain')


def test_file_of_undetectable_type_is_refused() -> None:
    with pytest.raises(ContentTypeNotSupportedError) as refused:
        prompt_content(Part(raw=base64_of(b'\0\1\2')), ACCEPTS_TEXT)
    assert (refused.value.message, refused.value.metadata) == snapshot(
        (
            'message.parts[0].raw: needs a mediaType. This agent takes text/plain, application/json.',
            {'field': 'message.parts[0].raw'},
        )
    )


@pytest.mark.parametrize(
    'media_type', ['image/png', 'application/pdf', 'audio/wav', 'video/mp4', 'application/zip', 'x/y']
)
def test_file_of_unsupported_media_type_is_refused(media_type: str) -> None:
    with pytest.raises(ContentTypeNotSupportedError, match=r'^message\.parts\[0\]\.mediaType: .* is not supported'):
        prompt_content(Part(raw=base64_of(b'a'), media_type=media_type), ACCEPTS_TEXT)


def test_file_of_unsupported_detected_type_is_refused() -> None:
    with pytest.raises(ContentTypeNotSupportedError) as refused:
        user_prompt(message(Part(text='Look'), Part(raw=base64_of(PNG))), ACCEPTS_TEXT)
    assert (refused.value.message, refused.value.metadata) == snapshot(
        (
            'message.parts[1].raw: image/png is not supported. This agent takes text/plain, application/json.',
            {'field': 'message.parts[1].raw'},
        )
    )


@pytest.mark.parametrize(
    ('part', 'message'),
    [
        (Part(raw='not base64'), 'Invalid parameters: message.parts[0].raw: must be base64'),
        (
            Part(raw='AAAA', media_type='png'),
            'Invalid parameters: message.parts[0].mediaType: must be a media type, such as image/png',
        ),
        (
            Part(raw=base64_of(b'\xff'), media_type='text/plain'),
            'Invalid parameters: message.parts[0].raw: must be text in the charset of its mediaType, or UTF-8',
        ),
        (
            Part(raw=base64_of(b'a'), media_type='text/plain; charset=klingon'),
            'Invalid parameters: message.parts[0].raw: must be text in the charset of its mediaType, or UTF-8',
        ),
        (Part(filename='a'), 'Invalid parameters: message.parts[0]: must have one of text, raw, url and data'),
    ],
)
def test_malformed_part_is_refused_with_its_field(part: Part, message: str) -> None:
    with pytest.raises(InvalidParamsError) as refused:
        prompt_content(part)
    assert refused.value.message == message


@pytest.mark.parametrize('value', [None, False, 0, '', [], {}, {'a': ['<b>']}])
def test_data_part_becomes_structured_content(value: Any) -> None:
    content = prompt_content(Part(data=value))
    assert content == StructuredContent(value, tag='data_part')
    assert content.value == value


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(JSON)
def test_data_part_survives_storing_the_prompt(value: Any) -> None:
    prompt = user_prompt(message(Part(data=value), Part(text='x')), ACCEPTS_ALL)
    request: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart(prompt)])]
    loaded = ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(request))
    part = loaded[0].parts[0]
    assert isinstance(part, UserPromptPart)
    assert isinstance(part.content[0], StructuredContent)
    assert part.content[0].value == value


@given(st.lists(st.text()))
def test_text_parts_reach_prompt_unchanged_in_order(texts: list[str]) -> None:
    prompt = user_prompt(message(*(Part(text=text) for text in texts)), ACCEPTS_ALL)
    assert ([prompt] if isinstance(prompt, str) else prompt) == texts


@given(st.binary())
def test_file_bytes_reach_the_prompt_unchanged(data: bytes) -> None:
    assert prompt_content(Part(raw=base64_of(data), media_type='application/pdf')).data == data


def test_accepted_content_follows_the_model_profile() -> None:
    profile = ModelProfile(
        supports_audio_file_input=False, supported_document_media_types=frozenset({'text/plain', 'application/pdf'})
    )
    assert accepts(profile) == snapshot(Accepts(documents=frozenset({'application/pdf', 'text/plain'}), audio=False))


def test_input_modes_follow_the_accepted_content() -> None:
    word_only = Accepts(images=False, documents=frozenset({'text/csv', 'application/pdf'}), audio=False, video=False)
    modes = {'all': accepts(ModelProfile()), 'text': ACCEPTS_TEXT, 'some': word_only}
    assert {name: takes.input_modes for name, takes in modes.items()} == snapshot(
        {
            'all': [
                'text/plain',
                'application/json',
                'image/jpeg',
                'image/png',
                'image/gif',
                'image/webp',
                'application/pdf',
                'application/msword',
                'application/vnd.ms-excel',
                'application/vnd.openxmlformats-officedocument.spreadsheetml.sheet',
                'application/vnd.openxmlformats-officedocument.wordprocessingml.document',
                'text/csv',
                'text/html',
                'text/markdown',
                'audio/wav',
                'audio/mpeg',
                'video/mp4',
            ],
            'text': ['text/plain', 'application/json'],
            'some': ['text/plain', 'application/json', 'application/pdf', 'text/csv'],
        }
    )


def test_unlisted_document_types_follow_a_common_flag() -> None:
    no_office = accepts(ModelProfile(supported_document_media_types=frozenset({'application/pdf'})))
    types = [
        'application/pdf',
        'application/msword',
        'application/rtf',
        'application/x-unknown',
        'image/avif',
        'text/x',
    ]
    assert {name: no_office.takes(name) for name in types} == snapshot(
        {
            'application/pdf': True,
            'application/msword': False,
            'application/rtf': True,
            'application/x-unknown': False,
            'image/avif': True,
            'text/x': True,
        }
    )


def test_profile_comes_from_the_model() -> None:
    model = TestModel(profile=ModelProfile(supports_image_input=False))
    assert resolve_profile([model]).get('supports_image_input') is False


class Unprofiled(TestModel):
    @cached_property
    def profile(self) -> ModelProfile:
        raise NotImplementedError


@pytest.mark.parametrize('models', [[], ['test'], ['nobody:nothing'], [Unprofiled()]])
def test_unknown_model_gets_the_default_profile(models: list[Model | str]) -> None:
    assert resolve_profile(models) == DEFAULT_PROFILE


def test_several_models_accept_only_common_content() -> None:
    pdf: frozenset[DocumentMediaType] = frozenset({'application/pdf', 'text/csv'})
    blind: frozenset[DocumentMediaType] = frozenset({'text/csv', 'text/plain'})
    reader = TestModel(profile=ModelProfile(supports_video_input=False, supported_document_media_types=pdf))
    listener = TestModel(profile=ModelProfile(supports_image_input=False, supported_document_media_types=blind))
    wrapped = WrapperModel(FallbackModel('test', WrapperModel(FallbackModel(reader, WrapperModel(listener)))))
    takes = Accepts(documents=frozenset({'text/csv'}), images=False, video=False)
    assert accepts(resolve_profile([wrapped])) == takes
    assert accepts(resolve_profile([reader, listener])) == takes


def test_model_of_missing_provider_package_gets_default_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, 'pydantic_ai.providers.anthropic', None)
    assert resolve_profile(['anthropic:claude-sonnet-4-5']) == DEFAULT_PROFILE


def test_history_becomes_model_requests_and_responses() -> None:
    history = [
        message(Part(text='Draw a chart')),
        Message(
            role='agent',
            message_id='a',
            parts=[
                Part(text='Here it is'),
                Part(raw=base64_of(PNG)),
                Part(raw=base64_of(b'\0'), media_type='application/zip'),
                Part(raw=base64_of(b'\0')),
                Part(data={'result': 1}),
                Part(url='https://example.com/chart'),
            ],
        ),
        message(Part(text='Thanks'), Part(text='Bye')),
    ]
    messages: list[Any] = [*model_messages(history, ACCEPTS_ALL)]
    assert [(type(each), [part.content for part in each.parts]) for each in messages] == snapshot(
        [
            (ModelRequest, ['Draw a chart']),
            (
                ModelResponse,
                [
                    'Here it is',
                    BinaryImage(data=b'\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR', media_type='image/png'),
                    BinaryContent(data=b'\x00', media_type='application/zip'),
                    BinaryContent(data=b'\x00', media_type='application/octet-stream'),
                    '{"result":1}',
                    'https://example.com/chart',
                ],
            ),
            (ModelRequest, [['Thanks', 'Bye']]),
        ]
    )


def test_malformed_history_part_is_refused_with_its_path() -> None:
    history = [message(Part(text='a')), Message(role='agent', message_id='a', parts=[Part(raw='?')])]
    with pytest.raises(InvalidParamsError, match=r'history\[1\]\.parts\[0\]\.raw: must be base64'):
        model_messages(history, ACCEPTS_ALL)
