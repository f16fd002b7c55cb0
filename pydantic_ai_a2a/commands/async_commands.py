"""Commands as functions: their type, and commands made of async functions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, TypeAlias

Command: TypeAlias = Callable[..., int]


def awaited(command: Callable[..., Coroutine[Any, Any, int]]) -> Command:
    """Make a command of an async function, in an event loop of its own."""

    @wraps(command)
    def run(**options: Any) -> int:
        return asyncio.run(command(**options))

    return run
