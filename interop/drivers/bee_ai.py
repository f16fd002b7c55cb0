"""BeeAI: an `A2AAgent`."""

from __future__ import annotations

from typing import Any

from beeai_framework.adapters.a2a.agents import A2AAgent
from beeai_framework.memory import UnconstrainedMemory
from driver import drive


async def ask(url: str, streaming: bool) -> dict[str, Any]:
    live: list[str] = []

    async def note(data: Any, event: Any) -> None:
        update = data.value[1] if isinstance(data.value, tuple) else None
        if update is not None and update.kind == 'artifact-update':
            live.extend(part.root.text for part in update.artifact.parts if part.root.kind == 'text')

    agent = A2AAgent(url=url, memory=UnconstrainedMemory())
    run = await agent.run('Go', streaming=streaming).on('update', note)
    return {'answer': run.last_message.text, 'live': live}


async def stream(url: str) -> dict[str, Any]:
    return await ask(url, True)


async def send(url: str) -> dict[str, Any]:
    return await ask(url, False)


drive(stream=stream, send=send)
