"""LiteLLM: its functions that send A2A messages. The driver assembles the text as LiteLLM does for its logs."""

from __future__ import annotations

import uuid
from typing import Any

from a2a.compat.v0_3 import types
from driver import drive
from litellm.a2a_protocol import asend_message, asend_message_streaming


def request(kind: Any) -> Any:
    message = {'role': 'user', 'parts': [{'kind': 'text', 'text': 'Go'}], 'messageId': uuid.uuid4().hex}
    return kind(id=uuid.uuid4().hex, params=types.MessageSendParams(message=message))


def read(artifact: dict[str, Any]) -> str:
    return ''.join(part.get('text', '') or str(part.get('data', '')) for part in artifact['parts'])


async def stream(url: str) -> dict[str, Any]:
    live, texts = [], {}
    async for chunk in asend_message_streaming(api_base=url, request=request(types.SendStreamingMessageRequest)):
        event = (chunk if isinstance(chunk, dict) else chunk.model_dump(mode='json', exclude_none=True))['result']
        if event.get('kind') == 'artifact-update':
            text, artifact_id = read(event['artifact']), event['artifact']['artifactId']
            live.append(text)
            texts[artifact_id] = texts.get(artifact_id, '') + text if event.get('append') else text
    return {'answer': ' '.join(texts.values()), 'live': live}


async def send(url: str) -> dict[str, Any]:
    response = await asend_message(api_base=url, request=request(types.SendMessageRequest))
    task = response.model_dump(mode='json', exclude_none=True)['result']
    return {'answer': ''.join(map(read, task.get('artifacts', [])))}


drive(stream=stream, send=send)
