"""JSON that this package accepts from clients: as strict as RFC 8259, without NUL in text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import NoReturn

from pydantic_core import to_json

from ...errors import A2AError, FieldViolation, InvalidRequestError, JSONParseError
from .invalid_params import bad_fields, invalid_fields
from .refused_requests import RpcRefused

_NAN = re.compile(rb'NaN(?<=[\s:,\[]NaN)')
"""NaN at the beginning of a value."""


def parse_json(body: bytes) -> object:
    """Parse JSON as strictly as RFC 8259: UTF-8, no NaN, no Infinity. Only lone surrogates are accepted.

    Raises:
        RpcRefused: The body is no JSON.
    """
    try:
        return json.loads(body.decode(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise RpcRefused(JSONParseError()) from None


def _refuse_constant(_: str) -> NoReturn:
    raise ValueError


def holds_constants(body: bytes) -> bool:
    """Return True if the JSON may hold NaN or infinity as values. Files often have the letters NaN in their base64."""
    return b'Infinity' in body or _NAN.search(body) is not None


def has_lone_surrogates(value: object) -> bool:
    """Return True if a value holds lone surrogates, which no encoding of Unicode can express."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except (UnicodeEncodeError, RecursionError) as error:
        return isinstance(error, UnicodeEncodeError)
    return False


def unreadable(request: dict[str, object], fields: Mapping[str, str]) -> A2AError:
    """Return the error of a body that one JSON parser accepts and the stricter parser refuses."""
    if names := bad_fields(request.get('params'), has_lone_surrogates, fields):
        return invalid_fields(FieldViolation(name, 'must not hold lone surrogates') for name in names)
    if has_lone_surrogates(request):
        return InvalidRequestError('Invalid request: it must not hold lone surrogates')
    raise RpcRefused(JSONParseError('Invalid JSON payload: nested too deeply.'))


def bad_text(params: object, fields: Mapping[str, str]) -> A2AError | None:
    """Return the error of params with NUL, which databases do not store."""
    names = bad_fields(params, _holds_nul, fields)
    return invalid_fields(FieldViolation(name, 'must not hold NUL characters') for name in names) if names else None


def _holds_nul(value: object) -> bool:
    # Once escaped backslashes are removed, each `\u0000` is an escaped NUL.
    return b'\\u0000' in to_json(value).replace(rb'\\', b'')
