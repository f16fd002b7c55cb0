"""The work of a client for one event of a stream, in calls of Python and C functions, and in memory."""

from __future__ import annotations

import json
import tracemalloc
from cProfile import Profile
from typing import Any, cast

import httpx2
from fasta2a.schema import AgentCard

from pydantic_ai_a2a import A2AClient
from pydantic_ai_a2a.client.following import START

from .canned import TASK, WORKING

CARD = cast(
    'AgentCard',
    {
        'name': 'canned',
        'capabilities': {'streaming': True},
        'supported_interfaces': [
            {'protocol_binding': 'JSONRPC', 'url': 'http://agent.example/rpc', 'protocol_version': '1.0'}
        ],
    },
)
MOST_CALLS = 50
"""Most calls for an event that adds a piece of text."""


def event(number: int, value: Any) -> bytes:
    return f'id: {number}\ndata: {json.dumps({"jsonrpc": "2.0", "id": 1, "result": value})}\n\n'.encode()


async def calls(deltas: int) -> int:
    """Count the calls of a streamed answer."""
    chunk = {'taskId': 't', 'contextId': 'c', 'artifact': {'artifactId': 'a', 'parts': [{'text': 'x'}]}, 'append': True}
    pieces = [event(n, {'artifactUpdate': chunk}) for n in range(2, deltas + 2)]
    body = b''.join([event(1, {'task': WORKING}), *pieces, event(deltas + 2, {'task': TASK})])
    response = httpx2.Response(200, headers={'content-type': 'text/event-stream'}, content=body)
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(lambda _: response)) as http:
        client = A2AClient(CARD, http_client=http)
        profile = Profile()
        events = 0
        with profile:
            async for _ in client.stream('hello'):
                events += 1
    assert events == deltas + 2
    return sum(entry.callcount for entry in profile.getstats())


async def test_a_piece_of_text_takes_few_calls() -> None:
    await calls(1)
    assert (await calls(300) - await calls(100)) / 200 <= MOST_CALLS


async def test_each_update_has_the_text_of_its_moment_and_no_copy() -> None:
    """A copy for each update would take 250 MB."""
    updates = [START.followed_by({'task': {'id': 't', 'context_id': 'c', 'status': {'state': 'working'}}})]
    tracemalloc.start()
    try:
        for n in range(500):
            artifact: Any = {'artifact_id': 'a', 'parts': [{'text': f'{n:<1999} '}]}
            update: Any = {'task_id': 't', 'context_id': 'c', 'artifact': artifact, 'append': True}
            updates.append(updates[-1].followed_by({'artifact_update': update}))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5_000_000
    whole = ''.join(f'{n:<1999} ' for n in range(500))
    for count in (500, 1, 250):
        task: Any = updates[count].task
        assert task['artifacts'] == [{'artifact_id': 'a', 'parts': [{'text': whole[: 2000 * count]}]}]
