"""The values of the fixtures `a2a_client` and `a2a_server`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any

from pydantic_ai.agent import AbstractAgent
from starlette.types import ASGIApp

from ..client.targets import Target
from ..server.app.serve import serve
from .client import A2ATestClient


class ClientFactory:
    """Makes clients that are closed at the end of the test: the value of the fixture `a2a_client`.

    Args:
        name: Name of the test.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._exits: AsyncExitStack | None = None

    def closed_by(self, test: Callable[..., Any]) -> Callable[..., Any]:
        """Return the test with an end that closes the clients: fixtures end after the event loop of the test."""
        if not iscoroutinefunction(test):
            return test
        exits = self._exits = AsyncExitStack()

        @wraps(test)
        async def closing(*args: Any, **kwargs: Any) -> None:
            async with exits:
                await test(*args, **kwargs)

        return closing

    async def __call__(self, target: Target, **options: Any) -> A2ATestClient:
        """Return a client that has been started.

        Args:
            target: An agent or an app in this process, or a URL.
            options: Arguments of `A2AClient`.

        Raises:
            RuntimeError: The test is no async function.
        """
        if self._exits is None:
            raise RuntimeError(f'a2a_client needs an async test, and {self._name} is none. Write `async def`.')
        return await self._exits.enter_async_context(A2ATestClient(target, **options))


class ServerFactory:
    """Serves agents and apps until the end of the test: the value of the fixture `a2a_server`.

    Args:
        exits: Closes the servers.
    """

    def __init__(self, exits: ExitStack) -> None:
        self._exits = exits

    def __call__(self, app: ASGIApp | AbstractAgent[Any, Any], **options: Any) -> str:
        """Return the URL of an agent or app on a free port. Options: see `serve`."""
        return self._exits.enter_context(serve(app, **options)).url
