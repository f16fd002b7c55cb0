"""The official Python SDK, 1.x, with its own helpers."""

from __future__ import annotations

from typing import Any

import httpx
from a2a.client import ClientCallContext, ClientConfig, create_client
from a2a.helpers import get_artifact_text, get_data_parts, get_stream_response_text, new_text_message
from a2a.types import GetTaskRequest, Role, SendMessageRequest
from driver import EXTENSIONS, drive


async def ask(url: str, streaming: bool) -> dict[str, Any]:
    async with httpx.AsyncClient(timeout=60) as http:
        client = await create_client(url, ClientConfig(httpx_client=http, streaming=streaming))
        context = ClientCallContext(service_parameters={'A2A-Extensions': EXTENSIONS} if EXTENSIONS else None)
        message = new_text_message('Go', role=Role.ROLE_USER)
        live, task_id = [], ''
        async for event in client.send_message(SendMessageRequest(message=message), context=context):
            live.append(get_stream_response_text(event))
            task_id = task_id or event.task.id
        task = await client.get_task(GetTaskRequest(id=task_id))
        artifact = task.artifacts[0]
        data = get_data_parts(artifact.parts)
        return {'answer': get_artifact_text(artifact) + ''.join(map(str, data)), 'live': live}


async def stream(url: str) -> dict[str, Any]:
    return await ask(url, True)


async def send(url: str) -> dict[str, Any]:
    return await ask(url, False)


drive(stream=stream, send=send)
