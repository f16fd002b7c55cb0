"""Files and messages for the model, and the artifacts of outputs, as tests give and compare them."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, Field, computed_field
from pydantic_ai.messages import BinaryContent
from pydantic_ai.profiles import DEFAULT_PROFILE, ModelProfile

from pydantic_ai_a2a.server.conversion.model_profiles import accepts
from pydantic_ai_a2a.server.conversion.output_mapper import OutputMapper
from pydantic_ai_a2a.types import Artifact, Message, Part

PNG = b'\x89PNG\r\n\x1a\n\0\0\0\rIHDR'
PDF = b'%PDF-1.7'
WAV = b'RIFF\x24\0\0\0WAVEfmt '
MP4 = b'\0\0\0\x20ftypisom\0\0\2\0'
ACCEPTS_ALL = accepts(DEFAULT_PROFILE)
ACCEPTS_TEXT = accepts(
    ModelProfile(
        supports_image_input=False,
        supports_document_input=False,
        supports_audio_file_input=False,
        supports_video_input=False,
    )
)


class Weather(BaseModel):
    city: str
    celsius: float = Field(alias='tempC')

    @computed_field
    @property
    def warm(self) -> bool:
        return self.celsius > 20


@dataclass
class Point:
    x: int
    y: int = 0


class Color(StrEnum):
    RED = 'red'


WEATHER = Weather(city='Utrecht', tempC=21.5)


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def message(*parts: Part) -> Message:
    return Message(role='user', message_id='m', parts=list(parts))


def artifacts(output_type: Any, output: Any, *files: BinaryContent) -> list[Artifact]:
    return OutputMapper(output_type).artifacts(output, artifact_id='t.result', files=files)


def single_part(output_type: Any, output: Any) -> Part:
    (artifact,) = artifacts(output_type, output)
    (part,) = artifact['parts']
    return part


def result_and_type(output_type: Any, *outputs: Any) -> list[tuple[Any, str]]:
    """The result and the type's name, as clients get them."""
    parts: list[Any] = [single_part(output_type, output) for output in outputs]
    return [(part['data']['result'], part['metadata']['python_type']) for part in parts]
