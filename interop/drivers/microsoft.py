"""Microsoft Agent Framework: an `A2AAgent`."""

from __future__ import annotations

from agent_framework.a2a import A2AAgent
from driver import drive


async def stream(url: str) -> dict[str, str]:
    live = ''
    async with A2AAgent(name='remote', url=url) as agent:
        response = agent.run('Go', stream=True)
        async for update in response:
            live += update.text
        return {'answer': (await response.get_final_response()).text, 'live': live}


async def send(url: str) -> dict[str, str]:
    async with A2AAgent(name='remote', url=url) as agent:
        return {'answer': (await agent.run('Go')).text}


drive(stream=stream, send=send)
