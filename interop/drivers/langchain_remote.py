"""LangChain: the `RemoteAgent` of langchain-remote-a2a-agent, a runnable."""

from __future__ import annotations

from typing import Any

from driver import CARD, drive
from langchain_remote_a2a_agent import RemoteAgent


def remote(url: str) -> RemoteAgent:
    return RemoteAgent(name='remote', description='An agent.', agent_card_url=url + CARD)


def content(message: Any) -> str:
    return message.content if isinstance(message.content, str) else ''.join(map(str, message.content))


async def stream(url: str) -> dict[str, Any]:
    live: list[str] = []
    async for chunk in remote(url).astream('Go'):
        live += map(content, chunk.get('messages', []))
    return {'answer': ''.join(live), 'live': live}


async def send(url: str) -> dict[str, Any]:
    return {'answer': content((await remote(url).ainvoke('Go'))['messages'][-1])}


drive(stream=stream, send=send)
