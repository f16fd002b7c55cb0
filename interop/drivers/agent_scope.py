"""AgentScope: an `A2AAgent`, which always asks for a stream."""

from __future__ import annotations

from typing import Any

import httpx
from a2a.client import A2ACardResolver
from agentscope.agent import A2AAgent
from agentscope.message import UserMsg
from driver import drive


async def stream(url: str) -> dict[str, Any]:
    async with httpx.AsyncClient() as http:
        card = await A2ACardResolver(http, url).get_agent_card()
    live, message = [], None
    async with A2AAgent(card) as agent:
        async for event in agent.reply_stream(UserMsg(name='user', content='Go'), yield_final_msg=True):
            if hasattr(event, 'get_text_content'):
                message = event
            elif type(event).__name__ == 'TextBlockDeltaEvent':
                live.append(event.delta)
    return {'answer': message.get_text_content() or '', 'live': live}


drive(stream=stream)
