"""NVIDIA NeMo Agent Toolkit: its client, which workflows call as a tool."""

from __future__ import annotations

from typing import Any

from driver import drive
from nat.plugins.a2a.client.client_base import A2ABaseClient


async def ask(url: str, streaming: bool) -> dict[str, Any]:
    async with A2ABaseClient(url, streaming=streaming) as client:
        return {'answer': client.extract_text_from_events([event async for event in client.send_message('Go')])}


async def stream(url: str) -> dict[str, Any]:
    return await ask(url, True)


async def send(url: str) -> dict[str, Any]:
    return await ask(url, False)


drive(stream=stream, send=send)
