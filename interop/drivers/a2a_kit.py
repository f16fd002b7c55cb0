"""a2akit: the texts that its client streams."""

from __future__ import annotations

from typing import Any

from a2akit.client import A2AClient
from driver import drive


async def stream(url: str) -> dict[str, Any]:
    async with A2AClient(url) as client:
        live = [text async for text in client.stream_text('Go')]
        return {'answer': ''.join(live), 'live': live}


async def send(url: str) -> dict[str, Any]:
    async with A2AClient(url) as client:
        result = await client.send('Go')
        return {'answer': result.text or str(result.data)}


drive(stream=stream, send=send)
