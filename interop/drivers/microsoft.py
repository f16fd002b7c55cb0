"""Microsoft Agent Framework: an `A2AAgent` with the agent's card, without which it does not stream."""

from __future__ import annotations

from typing import Any

import httpx
from a2a.client import A2ACardResolver
from agent_framework.a2a import A2AAgent
from driver import drive


async def stream(url: str) -> dict[str, Any]:
    async with httpx.AsyncClient() as http:
        card = await A2ACardResolver(http, url).get_agent_card()
    async with A2AAgent(name='remote', agent_card=card) as agent:
        response = agent.run('Go', stream=True)
        live = [update.text async for update in response]
        return {'answer': (await response.get_final_response()).text, 'live': live}


async def send(url: str) -> dict[str, Any]:
    async with A2AAgent(name='remote', url=url) as agent:
        return {'answer': (await agent.run('Go')).text}


drive(stream=stream, send=send)
