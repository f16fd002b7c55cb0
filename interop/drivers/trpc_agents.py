"""tRPC-Agent: a `Runner` whose agent is a remote agent."""

from __future__ import annotations

from typing import Any

from driver import drive
from trpc_agent_sdk.runners import Runner
from trpc_agent_sdk.server.a2a_v1 import TrpcRemoteA2aAgent
from trpc_agent_sdk.sessions import InMemorySessionService
from trpc_agent_sdk.types import Content, Part


async def stream(url: str) -> dict[str, Any]:
    agent = TrpcRemoteA2aAgent(name='remote', agent_base_url=url)
    await agent.initialize()
    runner = Runner(app_name='interop', agent=agent, session_service=InMemorySessionService())
    live: list[str] = []
    message = Content(role='user', parts=[Part(text='Go')])
    async for event in runner.run_async(user_id='user', session_id='session', new_message=message):
        if event.error_message:
            raise RuntimeError(event.error_message)
        if event.partial:  # all text of a remote agent; the only whole event is the user's message
            live.append(event.get_text())
    return {'answer': ''.join(live), 'live': live}


drive(stream=stream)
