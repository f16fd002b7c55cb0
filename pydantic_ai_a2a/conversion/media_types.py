"""The spelling of media types, and the detection of file types by their bytes."""

from __future__ import annotations

import re
from collections.abc import Collection
from encodings import normalize_encoding
from encodings.aliases import aliases
from typing import NamedTuple

OCTET_STREAM = 'application/octet-stream'
"""Media type without information: the type is detected, as if none were declared."""

_PREFIXES = (
    (b'\x89PNG\r\n\x1a\n', 'image/png'),
    (b'\xff\xd8\xff', 'image/jpeg'),
    (b'GIF87a', 'image/gif'),
    (b'GIF89a', 'image/gif'),
    (b'%PDF-', 'application/pdf'),
)
_RIFF = {b'WEBP': 'image/webp', b'WAVE': 'audio/wav'}
_FTYP = {
    b'M4A ': 'audio/mp4',
    b'M4B ': 'audio/mp4',
    b'avif': 'image/avif',
    b'heic': 'image/heic',
    b'mif1': 'image/heif',
    b'qt  ': 'video/quicktime',
}
"""Brands of the MP4 container that are no MP4 video."""

_ALIASES = {
    'application/x-pdf': 'application/pdf',
    'audio/mp3': 'audio/mpeg',
    'audio/vnd.wave': 'audio/wav',
    'audio/wave': 'audio/wav',
    'audio/x-wav': 'audio/wav',
    'image/jpg': 'image/jpeg',
}
"""Other spellings in use, with the spelling of Pydantic AI's models."""

_TEXT = frozenset(
    f'application/{subtype}'
    for subtype in (
        'graphql',
        'javascript',
        'json',
        'jsonl',
        'sql',
        'toml',
        'x-ndjson',
        'x-sh',
        'x-yaml',
        'xml',
        'yaml',
    )
)
_CODECS = frozenset(
    [
        *('ascii', 'utf_8', 'utf_8_sig', 'utf_16', 'utf_16_be', 'utf_16_le', 'utf_32', 'utf_32_be', 'utf_32_le'),
        *(
            'latin_1',
            *(f'iso8859_{n}' for n in range(2, 17) if n != 12),
            *(f'cp125{n}' for n in range(9)),
            'koi8_r',
            'koi8_u',
        ),
        *('big5', 'gb2312', 'gbk', 'gb18030', 'euc_jp', 'shift_jis', 'euc_kr', 'cp949'),
    ]
)
"""Python's names of the supported charsets. Each charset is read in one pass. Other charsets of Python take quadratic
time (`punycode`) or return no text."""
_NAME = re.compile(r"[a-z0-9][\w!#$&^.+'*-]{0,126}/[\w!#$&^.+'*-]{1,127}", re.ASCII)
_CHARSET = re.compile(r'\bcharset="?([\w.:+-]+)', re.ASCII)


class MediaType(NamedTuple):
    """A media type in its usual spelling."""

    name: str
    """Type and subtype in lower case, without parameters, such as `image/png`."""
    charset: str | None
    """The `charset` parameter in lower case; None without one."""


def parse_media_type(value: str) -> MediaType | None:
    """Read a media type of a client; None if it is malformed."""
    name, _, parameters = value.lower().partition(';')
    name = name.strip()
    if not _NAME.fullmatch(name):
        return None
    charset = _CHARSET.search(parameters)
    return MediaType(_ALIASES.get(name, name), charset[1] if charset else None)


def media_range(value: str) -> str:
    """Return a media type or a range in its usual spelling, without parameters. A bare `text` is `text/*`."""
    if (media := parse_media_type(value)) is not None:
        return media.name
    name = value.partition(';')[0].strip().lower()
    return name if '/' in name else f'{name}/*'


def in_ranges(name: str, ranges: Collection[str]) -> bool:
    """Return True for a media type among media types, `type/*` and `*/*`."""
    return not {name, f'{name.partition("/")[0]}/*', '*/*'}.isdisjoint(ranges)


def is_text(name: str) -> bool:
    """Return True for text files, which every model can read."""
    return name.startswith('text/') or name in _TEXT or name.endswith(('+json', '+xml'))


def decode_text(data: bytes, charset: str | None) -> str:
    """Return text of a declared charset, UTF-8 without one.

    Raises:
        ValueError: The bytes are not text of the charset, or the charset is not in use.
    """
    name = normalize_encoding(charset or 'utf-8-sig')
    codec = aliases.get(name, name)
    if codec not in _CODECS:  # codecs.lookup() imports modules by unknown names, and caches misses
        raise ValueError
    return data.decode(codec)


def detect_media_type(data: bytes) -> str | None:
    """Return the media type of a file by its first bytes, or `text/plain` for UTF-8 text; None for anything else."""
    return file_signature(data) or ('text/plain' if _is_utf8(data) else None)


def file_signature(data: bytes) -> str | None:
    """Return the media type of PNG, JPEG, GIF, WebP, PDF, WAV, MP3 and MP4 by the first 12 bytes; None for others."""
    for prefix, name in _PREFIXES:
        if data.startswith(prefix):
            return name
    if data[:4] == b'RIFF' and (riff := _RIFF.get(data[8:12])):
        return riff
    # The length of the box is first. Below 16 MB, the first byte is zero; text never has this byte.
    if data[4:8] == b'ftyp' and data[0] == 0:
        return _FTYP.get(data[8:12], 'video/mp4')
    return 'audio/mpeg' if _is_mp3(data) else None


def _is_mp3(data: bytes) -> bool:
    """Return True for an ID3v2 tag, or the header of an MPEG audio frame: sync, layer III, nothing in it reserved."""
    if data[:3] == b'ID3':
        return data[3:4] in {b'\x02', b'\x03', b'\x04'}
    if len(data) < 4 or data[0] != 0xFF or data[1] & 0xE6 != 0xE2:
        return False
    return data[1] & 0x18 != 0x08 and data[2] & 0xF0 != 0xF0 and data[2] & 0x0C != 0x0C


def _is_utf8(data: bytes) -> bool:
    if b'\0' in data:
        return False
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
