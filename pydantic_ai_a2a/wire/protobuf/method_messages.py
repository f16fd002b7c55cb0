"""Protobuf messages of `lf.a2a.v1`, to the JSON of A2A 1.0 and back.

Requests become JSON, which the codec of 1.0 reads, so that all bindings have the same rules. Answers are read from the
JSON of the codec by the descriptors of the messages, in a tenth of the time of `json_format.ParseDict`.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cache
from typing import Any, TypeAlias

from a2a.types import a2a_pb2
from google.protobuf import json_format, struct_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from pydantic_core import from_json, to_json

from ...errors import InvalidRequestError, UnsupportedOperationError
from ..extensions.own_extensions import EVENT_ID, EVENT_IDS_URI
from .field_count import check_fields, not_a_message

SERVICE = 'lf.a2a.v1.A2AService'
"""The service of A2A 1.0."""

Convert: TypeAlias = Callable[[Any], Any]
"""Makes a value of a protobuf field of a JSON value."""

_EPOCH = datetime.fromisoformat('1970-01-01T00:00:00Z')

_OPEN: dict[Descriptor, Convert] = {}
"""The readers of messages, also of those whose fields are not read yet: messages contain themselves."""


def methods() -> Mapping[str, MethodDescriptor]:
    """Return the methods of the service by name."""
    return a2a_pb2.DESCRIPTOR.services_by_name['A2AService'].methods_by_name


class MethodMessages:
    """The messages of one method.

    Args:
        method: The method.
        limit: Maximum number of fields and values in a message that is read.
        calling: True for a client, which writes requests and reads answers. Default: a server.
    """

    def __init__(self, method: MethodDescriptor, limit: int, *, calling: bool = False) -> None:
        self._limit = limit
        self._input, output = (method.input_type, method.output_type)[:: -1 if calling else 1]
        self._received = GetMessageClass(self._input)
        self._sent = GetMessageClass(output)
        self._fields = _reader(output)

    def decode(self, body: bytes) -> bytes:
        """Return a request as JSON; see `read`."""
        return to_json(self.read(body))

    def read(self, body: bytes) -> dict[str, Any]:
        """Return the JSON values of a message of the other side.

        Raises:
            InvalidRequestError: The bytes are not the message of the method, or have a value that JSON does not have.
            PayloadTooLargeError: The message has too many fields.
        """
        if len(body) > self._limit:
            check_fields(body, self._input, self._limit)
        try:
            return json_format.MessageToDict(self._received.FromString(body))
        except DecodeError:
            raise not_a_message(self._input) from None
        except json_format.SerializeToJsonError:
            text = 'Invalid request: numbers must be finite, and timestamps between the years 1 and 9999'
            raise InvalidRequestError(text) from None

    def encode(self, json: bytes, event_id: int | None = None) -> bytes:
        """Return a message for the other side, from its JSON.

        Args:
            json: The message.
            event_id: The id of an event, for the metadata of the event; None: the answer has no id.

        Raises:
            UnsupportedOperationError: Clients could not parse the message.
        """
        try:
            message: Any = self._sent(**self._fields(from_json(json)))
            if event_id is not None:
                metadata = getattr(message, message.WhichOneof('payload')).metadata
                metadata.fields[EVENT_IDS_URI].struct_value.fields[EVENT_ID].string_value = str(event_id)
            body = message.SerializeToString()
            self._sent.FromString(body)  # takes little time, and parses no deeper than clients do
            return body
        except (DecodeError, json_format.ParseError, OverflowError):
            raise UnsupportedOperationError(
                f'The {self._sent.DESCRIPTOR.name} has values that protobuf does not carry: nested too deeply, or'
                ' beyond a double. Use another binding.'
            ) from None


@cache
def _reader(descriptor: Descriptor) -> Convert:
    """Return a function that makes the arguments of a message of its JSON object. Unknown fields are ignored."""
    fields: dict[str, tuple[str, Convert | None]] = {}

    def read(value: Mapping[str, Any]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key, item in value.items():
            if key in fields:
                name, convert = fields[key]
                made[name] = item if convert is None else convert(item)
        return made

    _OPEN[descriptor] = read
    fields |= {field.json_name: (field.name, _field(field)) for field in descriptor.fields}
    return read


def _field(field: FieldDescriptor) -> Convert | None:
    """Return the conversion of a field; None if the JSON value is the value of the field."""
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        convert = _single(message.fields_by_name['value'])
        return None if convert is None else lambda value: {key: convert(item) for key, item in value.items()}
    convert = _single(field)
    if convert is None or field.default_value != []:  # the one sign of a repeated field in all versions of protobuf
        return convert
    return lambda value: [convert(item) for item in value]


def _single(field: FieldDescriptor) -> Convert | None:
    message = field.message_type
    if message is None:
        return b64decode if field.type == FieldDescriptor.TYPE_BYTES else None
    return _SPECIAL.get(message.full_name) or _OPEN.get(message) or _reader(message)


def _timestamp(value: str) -> dict[str, int]:
    time = datetime.fromisoformat(value) - _EPOCH
    return {'seconds': time.days * 86_400 + time.seconds, 'nanos': time.microseconds * 1_000}


def _struct(value: dict[str, Any]) -> struct_pb2.Struct:
    return json_format.ParseDict(value, struct_pb2.Struct())


def _value(value: object) -> struct_pb2.Value:
    return json_format.ParseDict(value, struct_pb2.Value())  # pyright: ignore[reportArgumentType]


_SPECIAL: Mapping[str, Convert] = {
    'google.protobuf.Struct': _struct,
    'google.protobuf.Timestamp': _timestamp,
    'google.protobuf.Value': _value,
}
"""The conversions of messages with a JSON form of their own."""
