"""A ledger and gates in the folder that the environment names, for processes without HTTP.

The main program is an MCP server over stdio with the tool `look`.
"""

from __future__ import annotations

import asyncio
from os import environ
from pathlib import Path

FOLDER = Path(environ['A2A_TEST_FOLDER'])


def note(line: str) -> None:
    """Write into the ledger what begins."""
    with (FOLDER / 'ledger.txt').open('a') as ledger:
        ledger.write(f'{line}\n')


async def stop_at(point: str, prompt: str) -> None:
    """Wait until the test opens all gates, if the prompt ends with this point: 'text at look'."""
    if not prompt.endswith(f' at {point}'):
        return
    (FOLDER / f'{prompt}.reached').touch()
    try:
        while not (FOLDER / 'opened').exists():  # noqa: ASYNC110 - a file tells nobody
            await asyncio.sleep(0.01)
    except asyncio.CancelledError:
        (FOLDER / f'{prompt}.stopped').touch()
        raise


if __name__ == '__main__':
    from mcp.server import MCPServer

    server = MCPServer('looks')

    @server.tool()
    async def look(prompt: str) -> str:
        """Look."""
        note(f'look for {prompt}')
        await stop_at('look', prompt)
        return 'seen'

    server.run('stdio')
