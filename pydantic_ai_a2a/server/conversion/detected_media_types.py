"""The media type of a file by its first bytes, and the text of a file by its charset."""

from __future__ import annotations

from encodings import normalize_encoding
from encodings.aliases import aliases

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
