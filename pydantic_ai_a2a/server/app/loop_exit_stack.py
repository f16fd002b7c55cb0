"""Context managers that an app enters together, once in each event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any


class LoopExitStack(AbstractAsyncContextManager[None]):
    """Enters several context managers together, once in each event loop.

    Args:
        makers: Each returns a context manager for the running loop.
    """

    def __init__(self, *makers: Callable[[], AbstractAsyncContextManager[Any]]) -> None:
        self._makers = makers
        self._stacks: dict[asyncio.AbstractEventLoop, AsyncExitStack] = {}

    async def __aenter__(self) -> None:
        async with AsyncExitStack() as stack:
            for make in self._makers:
                await stack.enter_async_context(make())
            self._stacks[asyncio.get_running_loop()] = stack.pop_all()

    async def __aexit__(self, *error: Any) -> bool | None:
        return await self._stacks.pop(asyncio.get_running_loop()).__aexit__(*error)
