"""The fixtures of `pydantic_ai_a2a.testing` for pytest. The first use of a fixture imports the package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pydantic_ai_a2a.testing import ClientFactory, ServerFactory


@pytest.fixture
def a2a_client(request: pytest.FixtureRequest) -> ClientFactory:
    """Return a function that makes an `A2AClient` of an agent or app in this process."""
    from pydantic_ai_a2a.testing import ClientFactory  # noqa: PLC0415 - takes as long as the whole package

    clients = ClientFactory(request.node.name)
    request.node.obj = clients.closed_by(request.node.obj)
    return clients


@pytest.fixture
def a2a_server() -> Iterator[ServerFactory]:
    """Return a function that serves an agent or app on a free port, and returns the URL."""
    from pydantic_ai_a2a.testing import ServerFactory  # noqa: PLC0415 - as above

    with ExitStack() as exits:
        yield ServerFactory(exits)
