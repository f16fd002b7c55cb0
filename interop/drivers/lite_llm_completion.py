"""LiteLLM: completions of a model that is a remote agent (`a2a/`)."""

from __future__ import annotations

from typing import Any

import litellm
from driver import drive

MESSAGES = [{'role': 'user', 'content': 'Go'}]


async def stream(url: str) -> dict[str, Any]:
    chunks = await litellm.acompletion(model='a2a/agent', api_base=url, messages=MESSAGES, stream=True)
    live = [chunk.choices[0].delta.content or '' async for chunk in chunks]
    return {'answer': ''.join(live), 'live': live}


async def send(url: str) -> dict[str, Any]:
    response = await litellm.acompletion(model='a2a/agent', api_base=url, messages=MESSAGES)
    return {'answer': response.choices[0].message.content or ''}


drive(stream=stream, send=send)
