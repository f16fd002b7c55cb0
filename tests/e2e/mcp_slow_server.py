"""An MCP server whose tool answers at once, fails, or answers never: over stdio, or as the ASGI app `app`."""

from __future__ import annotations

import asyncio
from os import getpid

from mcp.server import MCPServer

server = MCPServer('pids')


@server.tool()
async def pid(waits: bool = False, fails: bool = False) -> int:
    """Return the id of the server's process."""
    if fails:
        raise ValueError('no id')
    if waits:
        print('a call waits', flush=True)
        await asyncio.Event().wait()
    return getpid()


app = server.streamable_http_app()

if __name__ == '__main__':
    server.run('stdio')
