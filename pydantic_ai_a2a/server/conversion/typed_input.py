"""The data in a message that begins a task, validated by the agent's declared input type."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from ...errors import FieldViolation, InvalidParamsError
from ...json_values import faults_of
from ...type_names import type_name
from ...types.a2a_objects import Message, Part
from ...wire.schemas.validation_paths import place_of

_SHOWN = 20
"""Problems of one message that are told at once."""
_COUNTED = 1_000
"""Most problems with details. More problems are only counted, because details take long."""


class NoInput(Exception):
    """The task has no input of the requested type."""


class ValidatedInput(NamedTuple):
    """The validated data of a message."""

    type: Any
    """The declared input type."""
    value: Any
    """The object of the type."""
    part: int
    """Place of the data among the parts of the message."""
    data: Any
    """The object as JSON values, for the model."""
    given: Any
    """The data of the client."""

    def shown(self, message: Message) -> Message:
        """Return the message with the validated data in the place of the client's data."""
        parts = [*message['parts']]
        parts[self.part] = cast('Part', {**parts[self.part], 'data': self.data})
        return {**message, 'parts': parts}


def input_of(validated: ValidatedInput | None, input_type: Any) -> Any:
    """Return the validated object.

    Raises:
        NoInput: There is no object, or the object has another type.
    """
    if validated is None:
        raise NoInput(
            'The task has no validated input: it runs outside of A2A, or without Messages.input_type, or has begun with'
            ' other data before input_type was set.'
        )
    if validated.type != input_type:
        raise NoInput(
            f'Messages.input_type is {type_name(validated.type)}, not {type_name(input_type)}. Ask for the declared'
            ' type.'
        )
    return validated.value


class TypedInput:
    """The declared input type of an agent.

    Args:
        input_type: Any type that Pydantic can validate.
    """

    def __init__(self, input_type: Any) -> None:
        self._type = input_type
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
        if 'task_id' not in message:  # a task that asks back may be answered in words
            self._validate(message)

    def validated(self, message: Message) -> ValidatedInput | None:
        """Return the data of a stored message that has begun a task; None for a message that does not fit the type.

        The server may have accepted the message before the type was declared or changed.
        """
        try:
            place, value = self._validate(message)
        except InvalidParamsError:
            return None
        data = self._adapter.dump_python(value, mode='json', by_alias=True, warnings=False)
        return ValidatedInput(self._type, value, place, data, message['parts'][place].get('data'))

    def _validate(self, message: Message) -> tuple[int, Any]:
        """Return the place of the one data part of a message, and the validated object."""
        places = [n for n, part in enumerate(message['parts']) if 'data' in part]
        if len(places) != 1:
            raise InvalidParamsError.of('message.parts', 'must have one data part, with the inputSchema of the card')
        [n] = places
        data = message['parts'][n].get('data')
        try:
            return n, self._adapter.validate_json(to_json(data))
        except ValidationError as error:
            raise _refusal(error, f'message.parts[{n}].data', data) from None


def _refusal(error: ValidationError, field: str, data: Any) -> InvalidParamsError:
    if (count := error.error_count()) > _COUNTED:
        return InvalidParamsError.of(field, f'has {count} problems')
    violations = [
        FieldViolation(field + place_of(detail['loc'], data, missing=detail['type'] == 'missing'), detail['msg'])
        for detail in faults_of(error)[:_SHOWN]
    ]
    first = violations[0]
    return InvalidParamsError(f'Invalid parameters: {first.field}: {first.description}', violations=violations)
