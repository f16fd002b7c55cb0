"""Files and messages that tests give to the conversion for the model."""

from __future__ import annotations

import base64

from pydantic_ai.profiles import DEFAULT_PROFILE, ModelProfile

from pydantic_ai_a2a.conversion.inbound import accepts
from pydantic_ai_a2a.types import Message, Part

PNG = b'\x89PNG\r\n\x1a\n\0\0\0\rIHDR'
PDF = b'%PDF-1.7'
WAV = b'RIFF\x24\0\0\0WAVEfmt '
MP4 = b'\0\0\0\x20ftypisom\0\0\2\0'
EVERYTHING = accepts(DEFAULT_PROFILE)
TEXT_ONLY = accepts(
    ModelProfile(
        supports_image_input=False,
        supports_document_input=False,
        supports_audio_file_input=False,
        supports_video_input=False,
    )
)


def raw(data: bytes) -> str:
    return base64.b64encode(data).decode()


def message(*parts: Part) -> Message:
    return Message(role='user', message_id='m', parts=list(parts))
