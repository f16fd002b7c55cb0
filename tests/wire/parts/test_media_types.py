from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from pydantic_ai_a2a.server.conversion.base64_text import decode_base64
from pydantic_ai_a2a.server.conversion.detected_media_types import detect_media_type
from pydantic_ai_a2a.wire.parts.media_types import MediaType, is_text, parse_media_type

MAGIC = {
    'png': b'\x89PNG\r\n\x1a\n\0\0\0\rIHDR',
    'jpeg': b'\xff\xd8\xff\xe0\0\x10JFIF',
    'gif 87': b'GIF87a\1\0',
    'gif 89': b'GIF89a\1\0',
    'webp': b'RIFF\x24\0\0\0WEBPVP8 ',
    'wav': b'RIFF\x24\0\0\0WAVEfmt ',
    'pdf': b'%PDF-1.7\n%\xe2\xe3',
    'mp3 with a tag': b'ID3\4\0\0\0\0\0\0',
    'mp3 frame': b'\xff\xfb\x90\x64',
    'mp3 frame without checksum': b'\xff\xf3\x40\xc0',
    'mp4': b'\0\0\0\x20ftypisom\0\0\2\0',
    'm4a': b'\0\0\0\x20ftypM4A \0\0\2\0',
    'mov': b'\0\0\0\x14ftypqt  \0\0\2\0',
    'heic': b'\0\0\0\x14ftypheic\0\0\2\0',
    'text': 'Grüße'.encode(),
    'empty': b'',
}
OTHERS = {
    'text with a zero byte': b'a\0b',
    'not utf-8': b'\xe4\xf6\xfc',
    'utf-16': 'Hallo'.encode('utf-16'),
    'riff of another kind': b'RIFF\x24\0\0\0AVI LIST',
    'aac': b'\xff\xf1\x50\x80',
    'mpeg layer I': b'\xff\xff\x90\x64',
    'mpeg of a reserved version': b'\xff\xeb\x90\x64',
    'mpeg with a bad bit rate': b'\xff\xfb\xf0\x64',
    'mpeg with a bad sample rate': b'\xff\xfb\x9c\x64',
    'too short': b'\xff\xfb',
}
TEXTS = ['ID3 tags hold titles', 'The ftyp box is first', 'RIFF raff is a word', 'PDF', '%PD', 'GIF88a']


def test_media_type_is_detected_from_first_bytes() -> None:
    assert {name: detect_media_type(data) for name, data in MAGIC.items()} == snapshot(
        {
            'png': 'image/png',
            'jpeg': 'image/jpeg',
            'gif 87': 'image/gif',
            'gif 89': 'image/gif',
            'webp': 'image/webp',
            'wav': 'audio/wav',
            'pdf': 'application/pdf',
            'mp3 with a tag': 'audio/mpeg',
            'mp3 frame': 'audio/mpeg',
            'mp3 frame without checksum': 'audio/mpeg',
            'mp4': 'video/mp4',
            'm4a': 'audio/mp4',
            'mov': 'video/quicktime',
            'heic': 'image/heic',
            'text': 'text/plain',
            'empty': 'text/plain',
        }
    )


@pytest.mark.parametrize('data', OTHERS.values(), ids=OTHERS)
def test_unknown_binary_has_no_detected_media_type(data: bytes) -> None:
    assert detect_media_type(data) is None


@pytest.mark.parametrize('text', TEXTS)
def test_text_resembling_magic_numbers_is_detected_as_text(text: str) -> None:
    assert detect_media_type(text.encode()) == 'text/plain'


@given(st.text(st.characters(exclude_categories=['Cs'], exclude_characters='\0')))
def test_quoted_text_is_detected_as_text(text: str) -> None:
    assert detect_media_type(f'"{text}'.encode()) == 'text/plain'


def test_media_type_spellings_are_normalized() -> None:
    spellings = [
        'image/png',
        ' Image/PNG ',
        'image/jpg',
        'audio/x-wav',
        'audio/mp3',
        'text/plain; charset=UTF-8',
        'text/csv;header=present;charset="iso-8859-1"',
        'application/vnd.api+json',
        'text/plain;',
    ]
    assert {spelling: parse_media_type(spelling) for spelling in spellings} == snapshot(
        {
            'image/png': MediaType(name='image/png', charset=None),
            ' Image/PNG ': MediaType(name='image/png', charset=None),
            'image/jpg': MediaType(name='image/jpeg', charset=None),
            'audio/x-wav': MediaType(name='audio/wav', charset=None),
            'audio/mp3': MediaType(name='audio/mpeg', charset=None),
            'text/plain; charset=UTF-8': MediaType(name='text/plain', charset='utf-8'),
            'text/csv;header=present;charset="iso-8859-1"': MediaType(name='text/csv', charset='iso-8859-1'),
            'application/vnd.api+json': MediaType(name='application/vnd.api+json', charset=None),
            'text/plain;': MediaType(name='text/plain', charset=None),
        }
    )


@pytest.mark.parametrize(
    'value', ['', 'text', 'text/', '/plain', 'a/b/c', 'text/pläin', 'te xt/plain', 'a/' + 128 * 'b']
)
def test_malformed_media_type_is_not_parsed(value: str) -> None:
    assert parse_media_type(value) is None


@pytest.mark.parametrize(
    'name', ['text/x-python', 'application/json', 'application/atom+xml', 'application/yaml', 'image/svg+xml']
)
def test_json_xml_and_yaml_types_count_as_text(name: str) -> None:
    assert is_text(name)


@pytest.mark.parametrize('name', ['image/png', 'application/pdf', 'application/octet-stream', 'application/xmlish'])
def test_binary_media_types_are_not_text(name: str) -> None:
    assert not is_text(name)


@given(st.binary(), st.booleans(), st.booleans())
def test_base64_of_either_alphabet_and_padding_is_decoded(data: bytes, safe: bool, padded: bool) -> None:
    encoded = (base64.urlsafe_b64encode if safe else base64.b64encode)(data).decode()
    assert decode_base64(encoded if padded else encoded.rstrip('=')) == data


@pytest.mark.parametrize('value', ['a', 'ab c', 'ab\n', '!!!!', 'a=b=', 'äääa', 'abcde'])
def test_malformed_base64_is_refused(value: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        decode_base64(value)


@pytest.mark.parametrize(
    ('alias', 'name'),
    [
        ('application/x-pdf', 'application/pdf'),
        ('audio/mp3', 'audio/mpeg'),
        ('audio/vnd.wave', 'audio/wav'),
        ('audio/wave', 'audio/wav'),
        ('Audio/X-Wav; rate=8000', 'audio/wav'),
        ('image/jpg', 'image/jpeg'),
    ],
)
def test_alias_of_media_type_is_resolved(alias: str, name: str) -> None:
    assert parse_media_type(alias) == MediaType(name, None)
