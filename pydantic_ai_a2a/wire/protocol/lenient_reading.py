"""Lenient reading of what remote agents send, for all codecs.

Fields of FastA2A's TypedDicts may be absent, null or empty. A value that cannot be read and that the caller can do
without is left out, with a warning.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from copy import deepcopy
from functools import cache, lru_cache
from typing import Annotated, Any, NotRequired, cast, get_type_hints

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError, with_config
from pydantic.alias_generators import to_snake
from typing_extensions import TypedDict

from ...json_values import faults_of
from .request_fields import PROTO_JSON

logger = logging.getLogger('pydantic_ai_a2a')

SHAPE: Any = TypedDict
ANNOTATED: Any = Annotated

Filled = Annotated[str, Field(min_length=1)]

_MAX_TEXT = 1_000
"""Most characters of a remote agent's text."""
_CONTROLS = re.compile(r'[\x00-\x1f\x7f-\x9f]+')

_MOST_FAULTS = 1_000
"""Most values of an answer that are left out at a time."""
MOST_ROUNDS = 10
"""How often faulty values are left out: a value can be needed by its object, and the object by another object."""

current_agent: ContextVar[str] = ContextVar('current_agent', default='A remote agent')


class AnswerUnreadable(ValueError):
    """An answer is not in the form of its operation. The text names the first bad field, and no value."""


def lenient(shape: type[Any], after: Callable[..., object], *needed: str, **own: Any) -> Any:
    """Return the form of one of FastA2A's TypedDicts in answers: all fields but the needed ones may be absent or null.

    Args:
        shape: The TypedDict.
        after: Makes the value of the fields.
        needed: The fields that must be there.
        own: Types in the place of FastA2A's.
    """
    types = {**get_type_hints(shape), **own}
    fields = {name: kind if name in needed else NotRequired[kind | None] for name, kind in types.items()}
    return ANNOTATED[with_config(PROTO_JSON)(SHAPE(shape.__name__, fields)), AfterValidator(after)]


def present_fields(wire: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are set."""
    values = wire.values()
    if None not in values and '' not in values:
        return cast('dict[str, Any]', wire)
    return {name: value for name, value in wire.items() if value is not None and value != ''}


@cache
def adapter_of(form: Any) -> TypeAdapter[Any]:
    """Return the reader of a form, made at its first use: a command needs few of the forms."""
    return TypeAdapter(form)


def read_answer(form: Any, value: object, needed: str = '') -> Any:
    """Read a value, without the fields and entries that cannot be read and that the value does not need.

    Args:
        form: The form of the value.
        value: The value.
        needed: An optional field that is not left out; empty for none.

    Raises:
        AnswerUnreadable: The value is not in this form.
    """
    adapter = adapter_of(form)
    faults: list[str] = []
    for _ in range(MOST_ROUNDS):
        try:
            read = adapter.validate_python(value)
        except ValidationError as error:
            if error.error_count() > _MOST_FAULTS:
                raise AnswerUnreadable(f'more than {_MOST_FAULTS} values cannot be read') from None
            found = faults_of(error)
            value = value if faults else deepcopy(value)
            faults += [f'{".".join(map(str, fault["loc"]))}: {fault["msg"]}'.removeprefix(': ') for fault in found]
            # An absent field cannot be left out, but the object that needs it.
            places = {fault['loc'][:-1] if fault['type'] == 'missing' else fault['loc']: None for fault in found}
            if () in places or (needed,) in places:
                break
            _leave_out(value, places)
        else:
            if faults:
                warn_once(current_agent.get(), one_line(faults[0]))
            return read
    raise AnswerUnreadable(one_line(faults[0]))


def _leave_out(value: Any, places: Collection[tuple[int | str, ...]]) -> None:
    """Remove values. The later entries of a list come later in `places`, and are removed first."""
    for place in reversed([*places]):
        if any(place[:length] in places for length in range(1, len(place))):
            continue  # the value around it is removed
        holder: Any = None
        inner, in_list, key = value, False, None
        for step in place:
            if not isinstance(inner, dict | list):
                break  # the name of a member of a union, which is no place
            in_list, holder = isinstance(inner, list), cast('Any', inner)
            key = step if in_list or step in holder else to_snake(str(step))
            inner: Any = holder[key] if in_list else holder.get(key)
        if in_list or key in holder:  # else removed for another member of the union
            del holder[key]


@contextmanager
def reading(agent: str) -> Generator[None]:
    """Name the agent whose values are read, for warnings."""
    token = current_agent.set(agent)
    try:
        yield
    finally:
        current_agent.reset(token)


@lru_cache(maxsize=1_000)
def warn_once(agent: str, fault: str) -> None:
    """Log that a value is left out. Each fault of an agent is logged once."""
    logger.warning('%s has sent a value that cannot be read, and that is left out: %s', agent, fault)


def one_line(text: str) -> str:
    """Return text of a remote agent as one line of bounded length."""
    return _CONTROLS.sub(' ', text[:_MAX_TEXT])
