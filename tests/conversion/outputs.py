"""The artifacts of an output, as clients get them."""

from __future__ import annotations

from typing import Any

from pydantic_ai.messages import BinaryContent

from pydantic_ai_a2a.conversion.outbound import OutputMapper
from pydantic_ai_a2a.types import Artifact, Part


def artifacts(output_type: Any, output: Any, *files: BinaryContent) -> list[Artifact]:
    return OutputMapper(output_type).artifacts(output, artifact_id='t.result', files=files)


def only_part(output_type: Any, output: Any) -> Part:
    (artifact,) = artifacts(output_type, output)
    (part,) = artifact['parts']
    return part


def described(output_type: Any, *outputs: Any) -> list[tuple[Any, str]]:
    """The result and the type's name, as clients get them."""
    parts: list[Any] = [only_part(output_type, output) for output in outputs]
    return [(part['data']['result'], part['metadata']['python_type']) for part in parts]
