"""Limits of the content of one message, with errors that name the field (§13).

Sizes are those of the stored JSON, so the client's way of writing JSON has no effect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_core import to_json

from ...errors import InvalidParamsError
from ...settings.limits import Limits
from ...types.a2a_objects import Message, Part
from ...wire.schemas.json_depth import is_deep


def check_limits(message: Message, size: int, limits: Limits) -> None:
    """Refuse a message over a limit.

    Args:
        message: The message, with padded base64.
        size: Bytes of all its parts as JSON.
        limits: The limits.

    Raises:
        InvalidParamsError: The message is over a limit.
    """
    parts = message['parts']
    if size > limits.part or len(parts) > 1 or 'text' not in parts[0] or 'metadata' in parts[0]:
        _check_part_sizes(parts, limits)
    if 'metadata' in message:
        check_metadata(message['metadata'], 'message.metadata', limits)
    if 'reference_task_ids' in message:
        referenced = len(message['reference_task_ids'])
        _at_most(limits.references, referenced, 'tasks', 'message.referenceTaskIds')
    if 'extensions' in message:
        check_names(message['extensions'], 'message.extensions', limits)


def check_metadata(metadata: Mapping[str, Any], field: str, limits: Limits) -> None:
    """Refuse metadata that is too large or nested too deeply.

    Raises:
        InvalidParamsError: The metadata is over a limit.
    """
    _check_json(metadata, field, limits.metadata, limits)


def check_names(names: Sequence[str], field: str, limits: Limits) -> None:
    """Refuse a list of names larger than the limit of metadata.

    Raises:
        InvalidParamsError: The list is over the limit.
    """
    _at_most(limits.metadata, len(to_json(names)), 'bytes of JSON', field)


def _check_part_sizes(parts: Sequence[Part], limits: Limits) -> None:
    _at_most(limits.parts, len(parts), 'parts', 'message.parts')
    if len(parts) > limits.files:
        files = [part for part in parts if 'raw' in part or 'url' in part]
        _at_most(limits.files, len(files), 'files', 'message.parts')
    for index, part in enumerate(parts):
        _check_part(part, f'message.parts[{index}]', limits)


def _check_part(part: Part, field: str, limits: Limits) -> None:
    if 'text' in part:
        _at_most(limits.part, len(part['text']), 'characters', f'{field}.text')
    if 'data' in part:
        _check_json(part['data'], f'{field}.data', limits.part, limits)
    if 'metadata' in part:
        _check_json(part['metadata'], f'{field}.metadata', limits.metadata, limits)


def _check_json(value: object, field: str, limit: int, limits: Limits) -> None:
    text = to_json(value)
    if is_deep(text, value, limits.depth):
        raise InvalidParamsError.of(field, f'must not be nested more than {limits.depth} deep')
    _at_most(limit, len(text), 'bytes of JSON', field)


def _at_most(limit: int, size: int, unit: str, field: str) -> None:
    if size > limit:
        raise InvalidParamsError.of(field, f'must not have more than {limit} {unit}')
