"""The card of a remote agent is foreign text: the work on it is done once, and beside the event loop."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from starlette.responses import Response

from pydantic_ai_a2a import A2AToolset
from pydantic_ai_a2a.wire.extensions.card_schemas import SCHEMAS_URI

from ...bounds import LIMIT
from ...costs import own_calls
from ..canned_agent import CARD, TASK, CannedAgent, result_response
from .sample_agents import run_context

FIRST_CALLS = 4_000
"""Of the package's functions, in the thread of the event loop: the card is read there, and its schemas are not."""
LATER_CALLS = 30


def canned_agent_with_large_card(control: str) -> CannedAgent:
    """A remote agent whose card has many skills and one large schema, which was checked for each skill."""
    schema = {'type': 'object', 'properties': {f'a{n}': {'type': 'string'} for n in range(1_000)}}
    extension = {'uri': SCHEMAS_URI, 'params': {'inputSchema': schema}}
    skills = [{'id': f's{n}', 'name': f's{n}'} for n in range(128)]
    card = {**CARD, 'capabilities': {'extensions': [extension]}, 'skills': skills}
    canned = CannedAgent(result_response(TASK))
    canned.card = Response(json.dumps(card), headers={'cache-control': control}, media_type='application/json')
    return canned


@pytest.mark.parametrize('include_descriptions', [True, False])
async def test_tools_of_cached_card_are_built_once(*, include_descriptions: bool) -> None:
    toolset: A2AToolset[None] = A2AToolset(
        canned_agent_with_large_card('max-age=300').app, tools='skills', include_descriptions=include_descriptions
    )
    async with asyncio.timeout(LIMIT), toolset:
        first = await toolset.get_tools(run_context())
        assert len(first) == 128
        assert await own_calls(lambda: toolset.get_tools(run_context())) <= LATER_CALLS
        assert await toolset.get_tools(run_context()) == first


async def test_tools_of_uncached_card_are_built_once() -> None:
    toolset: A2AToolset[None] = A2AToolset(canned_agent_with_large_card('no-store').app, tools='skills')
    async with asyncio.timeout(LIMIT), toolset:
        await toolset.get_tools(run_context())
        assert await own_calls(lambda: toolset.get_tools(run_context())) <= FIRST_CALLS


async def test_card_schemas_are_checked_outside_event_loop() -> None:
    canned = canned_agent_with_large_card('max-age=300')

    async def read() -> Any:
        toolset: A2AToolset[None] = A2AToolset(canned.app, tools='skills')
        async with toolset:
            return await toolset.get_tools(run_context())

    async with asyncio.timeout(LIMIT):
        assert await own_calls(read) <= FIRST_CALLS
