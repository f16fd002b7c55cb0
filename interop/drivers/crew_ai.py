"""CrewAI: what an agent with an `A2AClientConfig` does when it delegates, without the agent's own model."""

from __future__ import annotations

from typing import Any

from crewai.a2a.updates import PollingConfig, StreamingConfig
from crewai.a2a.utils.delegation import aexecute_a2a_delegation
from driver import CARD, drive


async def ask(url: str, updates: Any) -> dict[str, Any]:
    task: dict[str, Any] = {'auth': None, 'timeout': 60, 'task_description': 'Go'}
    result = await aexecute_a2a_delegation(endpoint=url + CARD, updates=updates, **task)
    return {'answer': result.get('result', ''), **({'error': result['error']} if 'error' in result else {})}


async def stream(url: str) -> dict[str, Any]:
    return await ask(url, StreamingConfig())


async def send(url: str) -> dict[str, Any]:
    return await ask(url, PollingConfig(interval=0.1))


drive(stream=stream, send=send)
