"""Counts the fields of a protobuf message before the message is parsed.

Each field takes much more memory than its bytes.
"""

from __future__ import annotations

from google.protobuf.descriptor import Descriptor

from ...errors import InvalidRequestError, PayloadTooLargeError

_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
_SIZES = {_FIXED_64: 8, _FIXED_32: 4}


def not_a_message(expected: Descriptor) -> InvalidRequestError:
    """Return the error of bytes that are no message of a type."""
    return InvalidRequestError(
        f'Invalid request: the bytes must be a {expected.full_name}, nested at most 100 messages deep'
    )


def check_fields(body: bytes, message: Descriptor, limit: int) -> None:
    """Refuse a message with more fields than the limit, in all messages within.

    Raises:
        PayloadTooLargeError: The message has too many fields.
        InvalidRequestError: The bytes are no message.
    """
    try:
        fields = _count(body, message, limit)
    except LookupError:
        raise not_a_message(message) from None
    if fields > limit:
        raise PayloadTooLargeError(f'The request holds more than {limit} values.')


def _count(body: bytes, message: Descriptor | None, limit: int) -> int:
    """Return the number of fields, or a number above the limit.

    Raises:
        LookupError: A field is not complete, or of an unknown form.
    """
    at, end, count = 0, len(body), 0
    around: list[tuple[int, Descriptor | None]] = []
    """The ends of the messages around the current field, and their descriptors."""
    while count <= limit:
        while at >= end and around:
            end, message = around.pop()
        if at >= end:
            break
        count += 1
        tag, at = _varint(body, at)
        kind = tag & 7
        if kind == _VARINT:
            _, at = _varint(body, at)
        elif kind != _BYTES:
            at += _SIZES[kind]
        else:
            size, at = _varint(body, at)
            if at + size > end:
                raise IndexError
            field = None if message is None else message.fields_by_number.get(tag >> 3)
            if field is None or field.message_type is None:
                at += size
            else:
                around.append((end, message))
                end, message = at + size, field.message_type
    return count


def _varint(body: bytes, at: int) -> tuple[int, int]:
    """Return an integer, and the place after it."""
    value = shift = 0
    while True:
        byte = body[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise IndexError
