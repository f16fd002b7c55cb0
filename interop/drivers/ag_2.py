"""AG2: an `Agent` whose model is a remote agent."""

from __future__ import annotations

from typing import Any

from ag2 import Agent, MemoryStream
from ag2.a2a import A2AConfig
from ag2.events import ModelMessageChunk
from driver import drive


async def ask(url: str, streaming: bool) -> dict[str, Any]:
    live: list[str] = []

    async def note(chunk: ModelMessageChunk) -> None:
        live.append(chunk.content)

    messages = MemoryStream()
    messages.where(ModelMessageChunk).subscribe(note)
    reply = await Agent('remote', config=A2AConfig(url, streaming=streaming)).ask('Go', stream=messages)
    return {'answer': reply.body or '', 'live': live}


async def stream(url: str) -> dict[str, Any]:
    return await ask(url, True)


async def send(url: str) -> dict[str, Any]:
    return await ask(url, False)


drive(stream=stream, send=send)
