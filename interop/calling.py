"""What the client of this package shows of a server of another framework."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Sequence
from typing import Any

from interop.verdicts import TEXT
from pydantic_ai_a2a import A2AClient, RemoteAgent

LIMIT = 60
"""Seconds that the calls may take."""


def called(command: Sequence[str]) -> dict[str, Any]:
    """The bindings of a server that a command starts, and what each way of asking the server shows."""
    with subprocess.Popen([*command, TEXT], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            return asyncio.run(_asked(server.stdout.readline().strip()))
        finally:
            server.kill()


async def _asked(url: str) -> dict[str, Any]:
    async with asyncio.timeout(LIMIT), A2AClient(url) as client:
        card = await client.card()
        pieces: list[str] = []
        task: Any = None
        async for update in client.stream('Go'):
            task, event = update.task, update.event
            pieces.append(_text([event['artifact_update']['artifact']] if 'artifact_update' in event else []))
        sent: Any = await client.send('Go')
        read = await client.get(sent['id'])
        run = await RemoteAgent(url).run('Go')
    return {
        'offers': [
            f'{each["protocol_binding"]} {each.get("protocol_version")}'
            for each in card.get('supported_interfaces', ())
        ],
        'seen': [
            {'way': 'stream', 'answer': _text(task['artifacts']), 'live': pieces},
            {'way': 'send', 'answer': _text(sent['artifacts'])},
            {'way': 'get', 'answer': _text(read.get('artifacts', []))},
            {'way': 'RemoteAgent', 'answer': run.output},
        ],
    }


def _text(artifacts: Any) -> str:
    return ''.join(part.get('text', '') for artifact in artifacts for part in artifact['parts'])
