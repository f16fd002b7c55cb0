"""Agno: its `A2AClient`, with the loop of its documentation."""

from __future__ import annotations

from typing import Any

from agno.client.a2a import A2AClient
from driver import drive


async def stream(url: str) -> dict[str, Any]:
    events = A2AClient(url, protocol='json-rpc').stream_message('Go')
    live = [event.content async for event in events if event.is_content and event.content]
    return {'answer': ''.join(live), 'live': live}


async def send(url: str) -> dict[str, Any]:
    return {'answer': (await A2AClient(url, protocol='json-rpc').send_message('Go')).content}


drive(stream=stream, send=send)
