"""Errors that name the bad fields of a request.

No text repeats a value of the request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from types import MappingProxyType
from typing import cast

from pydantic import ValidationError

from ...errors import FieldViolation, InvalidParamsError
from ...json_values import faults_of
from .request_fields import MAX_ITEMS

_MAX_VIOLATIONS = 100
_MAX_DETAILS = 1_000
"""Most bad fields with details: Pydantic can only list all of them, which takes time."""
_MAX_NAMED = 5
_MAX_DEPTH = 8
_OPAQUE = {('data',), ('metadata',)}


def invalid(
    error: ValidationError,
    fields: Mapping[str, str] = MappingProxyType({}),
    *,
    envelope: int = 0,
) -> InvalidParamsError:
    """Return the error of invalid params for the client.

    Args:
        error: The result of validation.
        fields: The field names of the codec: every spelling, and the spelling for error texts.
        envelope: Number of path steps before the params.
    """
    if (count := error.error_count()) > _MAX_DETAILS:
        return InvalidParamsError(f'Invalid parameters: {count} problems')
    return invalid_fields(
        FieldViolation(
            _path(detail['loc'][envelope:], fields),
            'must not hold control characters' if detail['type'] == 'string_pattern_mismatch' else detail['msg'],
        )
        for detail in faults_of(error)
    )


def invalid_fields(violations: Iterable[FieldViolation]) -> InvalidParamsError:
    """Return the error of several bad fields: all in the details, the first few also in the message."""
    listed = list(islice(violations, _MAX_VIOLATIONS))
    named = '; '.join(f'{violation.field}: {violation.description}' for violation in listed[:_MAX_NAMED])
    more = '; and more' if len(listed) > _MAX_NAMED else ''
    return InvalidParamsError(f'Invalid parameters: {named}{more}', violations=listed)


def bad_fields(value: object, bad: Callable[[object], bool], fields: Mapping[str, str]) -> list[str]:
    """Return the paths of the fields with a bad value, as deep as the codec has names for them.

    Only bad values are entered, so `bad` may be a fast check of a whole tree.
    """
    return [_path(path, fields) for path in islice(_bad_paths(value, bad, fields), _MAX_VIOLATIONS)]


def _path(loc: tuple[int | str, ...], fields: Mapping[str, str]) -> str:
    path = ''.join(f'[{key}]' if isinstance(key, int) else f'.{fields.get(key, key)}' for key in loc)
    return path.removeprefix('.') or 'params'


def _bad_paths(
    value: object, bad: Callable[[object], bool], fields: Mapping[str, str], path: tuple[int | str, ...] = ()
) -> Iterator[tuple[int | str, ...]]:
    if not bad(value):
        return
    deeper = _members(value, path, fields)
    nothing = True
    for member, item in deeper:
        for inner in _bad_paths(item, bad, fields, member):
            nothing = False
            yield inner
    if nothing:
        yield path


def _members(
    value: object, path: tuple[int | str, ...], fields: Mapping[str, str]
) -> Iterator[tuple[tuple[int | str, ...], object]]:
    if len(path) >= _MAX_DEPTH or path[-1:] in _OPAQUE:
        return
    if isinstance(value, dict):
        for key, item in cast('dict[str, object]', value).items():
            if key in fields:
                yield (*path, key), item
    elif isinstance(value, list):
        for index, item in enumerate(cast('list[object]', value)[:MAX_ITEMS]):
            yield (*path, index), item
