"""CrewAI: what an agent with an `A2AClientConfig` does when it delegates, without the agent's own model."""

from __future__ import annotations

from typing import Any

from crewai.a2a.updates import PollingConfig, StreamingConfig
from crewai.a2a.utils.delegation import aexecute_a2a_delegation
from driver import drive


async def ask(url: str, updates: Any) -> dict[str, str]:
    card = f'{url}/.well-known/agent-card.json'
    result = await aexecute_a2a_delegation(endpoint=card, auth=None, timeout=60, task_description='Go', updates=updates)
    return {'answer': result.get('result', ''), **({'error': result['error']} if 'error' in result else {})}


async def stream(url: str) -> dict[str, str]:
    return await ask(url, StreamingConfig())


async def send(url: str) -> dict[str, str]:
    return await ask(url, PollingConfig(interval=0.1))


drive(stream=stream, send=send)
