"""The official Python SDK, 0.3.x, which assembles the task of a stream, and its own helper."""

from __future__ import annotations

from typing import Any

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory, create_text_message_object
from a2a.utils import get_artifact_text, get_data_parts
from driver import drive


async def ask(url: str, streaming: bool) -> dict[str, Any]:
    async with httpx.AsyncClient(timeout=60) as http:
        card = await A2ACardResolver(http, url).get_agent_card()
        client = ClientFactory(ClientConfig(httpx_client=http, streaming=streaming)).create(card)
        live, artifact = [], None
        async for task, update in client.send_message(create_text_message_object(content='Go')):
            artifact = task.artifacts[0] if task.artifacts else None
            if update is not None and update.kind == 'artifact-update':
                live.append(get_artifact_text(update.artifact))
        data = get_data_parts(artifact.parts)
        return {'answer': get_artifact_text(artifact) + ''.join(map(str, data)), 'live': live}


async def stream(url: str) -> dict[str, Any]:
    return await ask(url, True)


async def send(url: str) -> dict[str, Any]:
    return await ask(url, False)


drive(stream=stream, send=send)
