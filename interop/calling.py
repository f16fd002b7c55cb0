"""What the client of this package shows of a server of another framework."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Sequence
from typing import Any

from interop.verdicts import TEXT
from pydantic_ai_a2a import A2AClient, A2AError, RemoteAgent
from pydantic_ai_a2a.client.answer_content import answer_parts

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
            holder: Any = event.get('artifact_update', {}).get('artifact') or event.get('message')
            pieces.append(_text([holder['parts']] if holder else []))
        sent: Any = (await client.send('Go')).outcome
        try:
            read = {'answer': _answer((await client.get(sent['id'])).outcome)}
        except A2AError as error:
            read = {'error': str(error)}
        run = await RemoteAgent(url).run('Go')
    return {
        'offers': [
            f'{each["protocol_binding"]} {each.get("protocol_version")}'
            for each in card.get('supported_interfaces', ())
        ],
        'seen': [
            {'way': 'stream', 'answer': _answer(task), 'live': pieces},
            {'way': 'send', 'answer': _answer(sent)},
            {'way': 'get', **read},
            {'way': 'RemoteAgent', 'answer': run.output},
        ],
    }


def _answer(task: Any) -> str:
    return _text(answer_parts(task))


def _text(answer: Any) -> str:
    return ''.join(part.get('text', '') for parts in answer for part in parts)
