"""Google ADK: a `RemoteA2aAgent`, run by ADK's own runner."""

from __future__ import annotations

from typing import Any

import httpx
from a2a.client import ClientConfig, ClientFactory
from driver import CARD, drive
from google.adk.agents.remote_a2a_agent import RemoteA2aAgent
from google.adk.runners import InMemoryRunner
from google.genai import types


async def ask(url: str, streaming: bool) -> dict[str, Any]:
    async with httpx.AsyncClient(timeout=60) as http:
        factory = ClientFactory(ClientConfig(httpx_client=http, streaming=streaming))
        agent = RemoteA2aAgent(name='remote', agent_card=url + CARD, a2a_client_factory=factory)
        runner = InMemoryRunner(agent=agent, app_name='interop')
        session = await runner.session_service.create_session(app_name='interop', user_id='user')
        message = types.Content(role='user', parts=[types.Part(text='Go')])
        live, answer = [], ''
        async for event in runner.run_async(user_id='user', session_id=session.id, new_message=message):
            parts = [part for part in (event.content.parts or []) if not part.thought] if event.content else []
            text = ''.join(part.text for part in parts if part.text)
            text += ''.join(part.inline_data.data.decode() for part in parts if part.inline_data)
            if event.partial:
                live.append(text)
            elif event.is_final_response():  # as in ADK's documentation
                answer += text
        return {'answer': answer, 'live': live}


async def stream(url: str) -> dict[str, Any]:
    return await ask(url, True)


async def send(url: str) -> dict[str, Any]:
    return await ask(url, False)


drive(stream=stream, send=send)
