"""Validation of the data in a message that begins a task, by the agent's declared input type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from ..errors import FieldViolation, InvalidParamsError
from ..types import Message

__all__ = ('TypedInput', 'place_of')

_SHOWN = 20
"""Problems of one message that are told at once."""
_COUNTED = 1_000
"""Most problems with details. More problems are only counted, because details take long."""


class TypedInput:
    """The declared input type of an agent.

    Args:
        input_type: Any type that Pydantic can validate.
    """

    def __init__(self, input_type: Any) -> None:
        self._adapter: TypeAdapter[Any] = TypeAdapter(input_type)
        self.schema: dict[str, Any] = self._adapter.json_schema(mode='validation')
        """JSON Schema of the data, for the agent card."""

    def check(self, message: Message) -> None:
        """Refuse a message that begins a task without exactly one data part of the type.

        Text and files may accompany the data.

        Raises:
            InvalidParamsError: The message has no data part, several data parts, or invalid data; named by the fields
                of the data.
        """
        if 'task_id' in message:
            return  # a task that asks back may be answered in words
        places = [n for n, part in enumerate(message['parts']) if 'data' in part]
        if len(places) != 1:
            raise InvalidParamsError.of(
                'message.parts', 'must have one data part, as the inputSchema of the skill says'
            )
        [n] = places
        data = message['parts'][n].get('data')
        try:
            self._adapter.validate_json(to_json(data))
        except ValidationError as error:
            raise _refusal(error, f'message.parts[{n}].data', data) from None


def _refusal(error: ValidationError, field: str, data: Any) -> InvalidParamsError:
    if (count := error.error_count()) > _COUNTED:
        return InvalidParamsError.of(field, f'has {count} problems')
    details = error.errors(include_url=False, include_context=False, include_input=False)
    violations = [
        FieldViolation(field + place_of(detail['loc'], data, missing=detail['type'] == 'missing'), detail['msg'])
        for detail in details[:_SHOWN]
    ]
    first = violations[0]
    return InvalidParamsError(f'Invalid parameters: {first.field}: {first.description}', violations=violations)


def place_of(loc: Sequence[int | str], data: Any, *, missing: bool = False) -> str:
    """Return the path of a problem in data, without the members of unions in Pydantic's location."""
    path = ''
    for step in loc:
        if _has(data, step):
            data, path = data[step], path + _step(step)
    return path + _step(loc[-1]) if missing else path


def _has(data: Any, step: int | str) -> bool:
    if isinstance(data, list):
        return isinstance(step, int) and step < len(cast('list[Any]', data))
    return isinstance(data, dict) and step in data


def _step(step: int | str) -> str:
    return f'[{step}]' if isinstance(step, int) else f'.{step}'
