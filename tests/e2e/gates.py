"""Gates at which agents wait until a test opens them over HTTP. This module runs in the servers' processes."""

from __future__ import annotations

import asyncio
from collections import defaultdict

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

__all__ = ('ROUTES', 'gates')


class Gate:
    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()
        self.stopped = False
        """Whether a run was cancelled while it waited here."""

    async def wait(self) -> None:
        self.reached.set()
        try:
            await self.opened.wait()
        except asyncio.CancelledError:
            self.stopped = True
            raise


gates: defaultdict[str, Gate] = defaultdict(Gate)


async def reached(request: Request) -> Response:
    """Answers once a run waits at the gate."""
    await gates[request.path_params['gate']].reached.wait()
    return Response(status_code=204)


async def open_gate(request: Request) -> Response:
    """Opens the gate once the request is complete."""
    await request.body()
    gates[request.path_params['gate']].opened.set()
    return Response(status_code=204)


async def stopped(request: Request) -> Response:
    return JSONResponse(gates[request.path_params['gate']].stopped)


ROUTES = [
    Route('/gates/{gate}/reached', reached),
    Route('/gates/{gate}/open', open_gate, methods=['POST']),
    Route('/gates/{gate}/stopped', stopped),
]
