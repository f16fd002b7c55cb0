"""Strands Agents: an `A2AAgent`, which always asks for a stream."""

from __future__ import annotations

from typing import Any

from driver import drive
from strands.agent.a2a_agent import A2AAgent


async def stream(url: str) -> dict[str, Any]:
    live, answer = [], ''
    async for event in A2AAgent(endpoint=url).stream_async('Go'):
        if 'result' in event:
            answer = str(event['result']).removesuffix('\n')
        elif isinstance(event['event'], tuple):
            update = event['event'][1]
            parts = update.artifact.parts if update is not None and update.kind == 'artifact-update' else []
            live += [part.root.text for part in parts if part.root.kind == 'text']
    return {'answer': answer, 'live': live}


drive(stream=stream)
