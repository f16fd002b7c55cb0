"""fast-agent: an `A2ARemoteAgent`."""

from __future__ import annotations

import uuid
from typing import Any

from a2a.types import Message, Part, Role, SendMessageRequest
from driver import drive
from fast_agent.a2a.config import A2AAgentConfig
from fast_agent.a2a.remote_agent import A2ARemoteAgent
from fast_agent.agents.agent_types import AgentConfig


async def ask(url: str, streaming: bool) -> dict[str, Any]:
    live: list[str] = []
    agent = A2ARemoteAgent(AgentConfig(name='remote'), A2AAgentConfig(url=url, streaming=streaming))
    await agent.initialize()
    agent.add_stream_listener(lambda chunk: live.append(chunk.text))
    message = Message(message_id=uuid.uuid4().hex, role=Role.ROLE_USER, parts=[Part(text='Go')])
    result = await agent._consume_events(agent._client.send_message(SendMessageRequest(message=message)))
    await agent.shutdown()
    return {'answer': result.text, 'live': live}


async def stream(url: str) -> dict[str, Any]:
    return await ask(url, True)


async def send(url: str) -> dict[str, Any]:
    return await ask(url, False)


drive(stream=stream, send=send)
