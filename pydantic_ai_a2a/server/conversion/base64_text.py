"""Base64 as in ProtoJSON."""

from __future__ import annotations

import binascii

_CHUNK = 65_536
"""Characters of base64 to decode at once. Other threads run in between."""


def decode_base64(value: str) -> bytes:
    """Decode base64, standard or URL-safe, padded or not, as in ProtoJSON (A2A 1.0 §5.5).

    Raises:
        ValueError: The text is not base64.
    """
    text = value.rstrip('=')
    if '=' in text:  # the decoder would accept padding at the end of a chunk
        raise ValueError
    if '-' in text or '_' in text:
        text = text.replace('-', '+').replace('_', '/')
    text += '=' * (-len(text) % 4)
    chunks = (text[start : start + _CHUNK] for start in range(0, len(text), _CHUNK))
    return b''.join(binascii.a2b_base64(chunk, strict_mode=True) for chunk in chunks)
