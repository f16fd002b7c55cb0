"""Functions of the operator that decide about callers: a result of a wrong type allows nothing, and is logged."""

from __future__ import annotations

import logging
from collections.abc import Callable
from inspect import isawaitable, iscoroutine
from typing import Any

logger = logging.getLogger('pydantic_ai_a2a')

_REFUSED = '%s: the caller is refused.'


class WrongValue(TypeError):
    """A function of the operator returned a value of a wrong type. The value itself may be a credential."""

    def __init__(self, option: str, function: object, value: object, wanted: str) -> None:
        name = getattr(function, '__qualname__', type(function).__qualname__)
        super().__init__(f'{option} {name} returned {type(value).__name__} instead of {wanted}')
        if iscoroutine(value):
            value.close()  # else Python warns that nobody awaited it


async def allows(option: str, function: Callable[..., Any], *args: Any) -> bool:
    """Return True if the operator's function, async or not, returns True for the arguments.

    A value that is no bool, such as a forgotten coroutine, allows nothing. It gets a line in the log.

    Args:
        option: The option with the function, for the log.
        function: The function.
        args: The arguments of the function.
    """
    try:
        return await verdict_of(option, function, *args)
    except WrongValue as error:
        logger.error(_REFUSED, error)
        return False


async def verdict_of(option: str, function: Callable[..., Any], *args: Any) -> bool:
    """Return what the operator's function, async or not, returns for the arguments of `allows`.

    Raises:
        WrongValue: The function returns no bool.
    """
    allowed = function(*args)
    if isawaitable(allowed):
        allowed = await allowed
    if isinstance(allowed, bool):
        return allowed
    raise WrongValue(option, function, allowed, 'True or False')


def refuse_value(option: str, function: object, value: object, wanted: str) -> None:
    """Log that a function of the operator returned a value that allows nothing."""
    logger.error(_REFUSED, WrongValue(option, function, value, wanted))
