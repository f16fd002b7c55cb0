from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from inline_snapshot import snapshot
from pydantic_ai.messages import (
    AudioUrl,
    DocumentUrl,
    ImageUrl,
    VideoUrl,
)
from pydantic_ai.profiles import DEFAULT_PROFILE

from pydantic_ai_a2a.errors import ContentTypeNotSupportedError, InvalidParamsError
from pydantic_ai_a2a.server.conversion.accepted_content import Accepts
from pydantic_ai_a2a.server.conversion.model_profiles import accepts
from pydantic_ai_a2a.server.conversion.user_prompts import user_prompt
from pydantic_ai_a2a.types import Part

from ...cases import each_case
from .conversion_values import ACCEPTS_ALL, ACCEPTS_TEXT, message


def prompt_content(part: Part, takes: Accepts = ACCEPTS_ALL) -> Any:
    prompt = user_prompt(message(part), takes)
    return prompt if isinstance(prompt, str) else prompt[0]


URLS = [
    Part(url='https://example.com/a.png'),
    Part(url='https://example.com:8080/a.MP3?token=x#y', filename='song.mp3'),
    Part(url='https://example.com/clip.mp4'),
    Part(url='https://example.com/paper.pdf'),
    Part(url='https://example.com/download?id=a.png', media_type='application/pdf'),
    Part(url='https://example.com/download', filename='paper.docx'),
    Part(url='https://example.com/data.json'),
    Part(url='https://example.com/drawing.svg'),
    Part(url='https://youtu.be/dQw4w9WgXcQ'),
    Part(url='https://8.8.8.8/a.gif'),
    Part(url='https://[2606:4700:4700::1111]/a.gif'),
    Part(url='https://bücher.example/a.gif'),
]


def test_urls_become_image_audio_video_or_document_content() -> None:
    assert user_prompt(message(*URLS), ACCEPTS_ALL) == snapshot(
        [
            ImageUrl(url='https://example.com/a.png', force_download=True, _media_type='image/png'),
            AudioUrl(
                url='https://example.com:8080/a.MP3?token=x#y',
                force_download=True,
                _media_type='audio/mpeg',
                _identifier='song.mp3',
            ),
            VideoUrl(url='https://example.com/clip.mp4', force_download=True, _media_type='video/mp4'),
            DocumentUrl(url='https://example.com/paper.pdf', force_download=True, _media_type='application/pdf'),
            DocumentUrl(
                url='https://example.com/download?id=a.png', force_download=True, _media_type='application/pdf'
            ),
            DocumentUrl(
                url='https://example.com/download',
                force_download=True,
                _media_type='application/vnd.openxmlformats-officedocument.wordprocessingml.document',
                _identifier='paper.docx',
            ),
            DocumentUrl(url='https://example.com/data.json', force_download=True, _media_type='application/json'),
            DocumentUrl(url='https://example.com/drawing.svg', force_download=True, _media_type='image/svg+xml'),
            VideoUrl(url='https://youtu.be/dQw4w9WgXcQ', _media_type='video/mp4'),
            ImageUrl(url='https://8.8.8.8/a.gif', force_download=True, _media_type='image/gif'),
            ImageUrl(url='https://[2606:4700:4700::1111]/a.gif', force_download=True, _media_type='image/gif'),
            ImageUrl(url='https://bücher.example/a.gif', force_download=True, _media_type='image/gif'),
        ]
    )


def test_url_keeps_media_type_and_filename() -> None:
    url = prompt_content(Part(url='https://example.com/x', media_type='image/jpg', filename='x.jpg'))
    assert (type(url), url.media_type, url.identifier) == (ImageUrl, 'image/jpeg', 'x.jpg')


@pytest.mark.parametrize(
    'url',
    ['https://example.com', 'https://example.com/a', 'https://example.com/a.txt.gz', 'https://example.com/?a.png'],
)
def test_url_of_unknown_media_type_is_refused(url: str) -> None:
    with pytest.raises(ContentTypeNotSupportedError, match='needs a mediaType'):
        prompt_content(Part(url=url))


@pytest.mark.parametrize(
    ('part', 'field', 'problem'),
    [
        (Part(url='https://example.com/a.png'), 'message.parts[0].url', 'image/png is not supported'),
        (
            Part(url='https://example.com/a', media_type='text/plain'),
            'message.parts[0].mediaType',
            'text/plain is not supported by URL',
        ),
    ],
)
@pytest.mark.parametrize('takes', [ACCEPTS_TEXT, replace(ACCEPTS_TEXT, declared=('text/plain', 'application/json'))])
def test_url_of_unsupported_media_type_is_refused(part: Part, field: str, problem: str, takes: Accepts) -> None:
    with pytest.raises(ContentTypeNotSupportedError) as refused:
        prompt_content(part, takes)
    assert refused.value.message == f'{field}: {problem}. This agent takes text/plain, application/json.'
    assert refused.value.metadata == {'field': field}


@each_case(
    'url',
    [
        'file:///etc/passwd',
        'http://example.com/a.png',
        's3://bucket/a.png',
        'data:image/png;base64,AAAA',
        'ftp://example.com/a.png',
        '//example.com/a.png',
        'example.com/a.png',
        '',
        'https://',
        'https:///a.png',
        'https://./a.png',
        'https://:443/a.png',
        'https://user@example.com/a.png',
        'https://user:secret@example.com/a.png',
        'https://example.com:0/a.png',
        'https://example.com:99999/a.png',
        'https://[::1/a.png',
        'https://a..b/a.png',
        'https://exa mple.com/a.png',
        'https://example.com/\na.png',
        'https://example.com\\@127.0.0.1/a.png',
        'https://127%2e0.0.1/a.png',
        'https://[fe80::1%25eth0]/a.png',
    ],
)
def test_malformed_or_non_https_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidParamsError, match=r'^Invalid parameters: message\.parts\[0\]\.url: must'):
        prompt_content(Part(url=url))


@each_case(
    'host',
    [
        'localhost',
        'LOCALHOST.',
        'api.localhost',
        'internal',
        'db.internal',
        'Printer.LOCAL.',
        'router.home.arpa',
        'ⓛocalhost',
        '127.0.0.1',
        '127.0.0.1.',
        '127.1',
        '2130706433',
        '0x7f000001',
        '0177.0.0.1',
        '１２７.0.0.1',
        '0.0.0.0',
        '10.1.2.3',
        '172.16.0.1',
        '192.168.1.1',
        '169.254.169.254',
        '100.64.0.1',
        '224.0.0.1',
        '255.255.255.255',
        '[::]',
        '[::1]',
        '[::ffff:127.0.0.1]',
        '[::127.0.0.1]',
        '[fe80::1]',
        '[fec0::1]',
        '[fd00::1]',
        '[ff02::1]',
        '[2002:7f00:1::]',
        '[64:ff9b::7f00:1]',
        '[64:ff9b:1::7f00:1]',
        '[2606:4700::5efe:7f00:1]',
        '168.63.129.16',
    ],
)
def test_private_url_address_is_refused_in_any_notation(host: str) -> None:
    with pytest.raises(InvalidParamsError, match='must not point to a private address'):
        prompt_content(Part(url=f'https://{host}/a.png'))


ANY_STORE = accepts(DEFAULT_PROFILE, {'https', 'HTTP', 's3'})


@pytest.mark.parametrize('url', ['https://example.com/a.png', 'HTTP://example.com/a.png', 's3://my_bucket/a.png'])
def test_url_of_an_allowed_scheme_is_accepted(url: str) -> None:
    file = prompt_content(Part(url=url), ANY_STORE)
    assert file == ImageUrl(url=url, force_download=not url.startswith('s3:'), _media_type='image/png')


def test_url_download_can_be_left_to_provider() -> None:
    takes = accepts(DEFAULT_PROFILE, force_download=False)
    assert prompt_content(Part(url='https://example.com/a.png'), takes).force_download is False


@pytest.mark.parametrize(
    ('url', 'problem'),
    [
        ('gs://bucket/a.png', 'must be an http or https or s3 URL'),
        (
            'http://127.0.0.1/a.png',
            'must not point to a private address: send the bytes of the file instead of its URL',
        ),
        (
            's3://key:secret@bucket/a.png',
            'must not hold credentials: send the bytes of the file, or a URL without a user name and password',
        ),
        ('s3:///a.png', 'must be a URL'),
    ],
)
def test_url_of_allowed_scheme_is_still_checked(url: str, problem: str) -> None:
    with pytest.raises(InvalidParamsError, match=problem):
        prompt_content(Part(url=url), ANY_STORE)


def test_urls_are_refused_if_no_scheme_is_allowed() -> None:
    with pytest.raises(InvalidParamsError, match='URLs are not accepted'):
        prompt_content(Part(url='https://example.com/a.png'), accepts(DEFAULT_PROFILE, ()))
