"""Fixtures of the tests of gRPC."""

from __future__ import annotations

import asyncio

import pytest

from pydantic_ai_a2a.server.grpc.call import GrpcCall


@pytest.fixture
def ended_methods(monkeypatch: pytest.MonkeyPatch) -> asyncio.Queue[str]:
    """The methods whose calls the server has done with, in this order."""
    ended: asyncio.Queue[str] = asyncio.Queue()
    serve = GrpcCall.serve

    async def then_tell(call: GrpcCall) -> None:
        try:
            await serve(call)
        finally:
            ended.put_nowait(call._operation.name)  # pyright: ignore[reportPrivateUsage]

    monkeypatch.setattr(GrpcCall, 'serve', then_tell)
    return ended
