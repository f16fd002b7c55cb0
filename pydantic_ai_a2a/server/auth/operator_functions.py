"""Functions of the operator that decide about callers: a result of a wrong type allows nothing, and is logged."""

from __future__ import annotations

import logging
from collections.abc import Callable
from inspect import isawaitable, iscoroutine
from typing import Any

logger = logging.getLogger('pydantic_ai_a2a')


async def allows(option: str, function: Callable[..., Any], *args: Any) -> bool:
    """Return True if the operator's function, async or not, returns True for the arguments.

    A value that is no bool, such as a forgotten coroutine, allows nothing. It gets a line in the log.

    Args:
        option: The option with the function, for the log.
        function: The function.
        args: The arguments of the function.
    """
    allowed = function(*args)
    if isawaitable(allowed):
        allowed = await allowed
    return allowed if isinstance(allowed, bool) else refuse_value(option, function, allowed, 'True or False')


def refuse_value(option: str, function: object, value: object, wanted: str) -> bool:
    """Log that a function of the operator returned a value that allows nothing, and return False."""
    name = getattr(function, '__qualname__', type(function).__qualname__)
    # The value itself may be a credential.
    logger.error('%s %s returned %s instead of %s: the caller is refused.', option, name, type(value).__name__, wanted)
    if iscoroutine(value):
        value.close()  # else Python warns that nobody awaited it
    return False
