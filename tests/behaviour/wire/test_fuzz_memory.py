"""What was sent leaves nothing in memory, be it taken or refused: no request makes the server grow for good.

`make fuzz` sends ten thousand requests.
"""

from __future__ import annotations

import gc
import json
import logging
import random
import tracemalloc
from collections import Counter
from datetime import timedelta
from typing import Any

from pydantic_ai import Agent

from pydantic_ai_a2a import APIKeyAuth, BearerAuth, Limits, Quotas, Rate, Retention, to_a2a

from ...client import Exchange, lifespan, message
from ...dialects import unversioned
from ...long import LONG

REQUESTS = 10_000 if LONG else 400
GROWTH = 200_000 + 200 * REQUESTS
"""Bytes: what is made once only, and strings of which Pydantic's parser of JSON keeps some thousand."""
ANN = 'the-token-of-ann-1234'
METHODS = ['SendMessage', 'SendStreamingMessage', 'GetTask', 'ListTasks', 'CancelTask', 'message/send', 'nothing', 'é']
JUNK = [b'"', b'}', b'[', b'\\u0000', b'\\ud800', b'NaN', b'1e999', b'\xff', b'9' * 400, b'[' * 300]
PATHS = ['/', '/', '/', '/tasks', '/tasks/{id}', '/tasks/{id}:cancel', '/message:send', '/nothing/{id}']


def drawn(chance: random.Random) -> tuple[str, str, dict[str, str], bytes]:
    """A request, of which something may be wrong: verb, path, headers, body."""
    unique = f'{chance.getrandbits(64):x}'
    params: dict[str, Any] = {'id': unique} if chance.random() < 0.4 else {'message': message(unique)}
    if chance.random() < 0.3:
        params['message'] = message(unique, contextId=unique, metadata={unique: unique})
    body = json.dumps({'jsonrpc': '2.0', 'id': unique, 'method': chance.choice(METHODS), 'params': params}).encode()
    if chance.random() < 0.3:
        at = chance.randrange(len(body))
        body = body[:at] + chance.choice(JUNK) + body[at + chance.randrange(4) :]
    token = ANN if chance.random() < 0.8 else f'{unique}{unique}'
    headers = {'Authorization': f'Bearer {token}', 'Content-Type': chance.choice(['application/json'] * 9 + [unique])}
    if chance.random() < 0.2:
        headers[f'X-{unique}'] = unique
        headers['A2A-Version'] = chance.choice(['1.0', '0.3', unique])
    verb = chance.choice(['POST'] * 6 + ['GET', 'PUT'])
    return verb, f'{chance.choice(PATHS).format(id=unique)}?key={unique}', headers, body


@unversioned('requests of all versions and bindings are mixed')
async def test_the_server_does_not_grow_with_what_is_sent() -> None:
    app = to_a2a(
        Agent('test'),
        auth=[BearerAuth({ANN: 'ann'}), APIKeyAuth({ANN: 'ann'}, query='key')],
        limits=Limits(quotas=Quotas(rates=Rate(10**6, timedelta(seconds=1)), streams=10, tasks=10)),
        retention=Retention(max_tasks=20),
    )
    chance = random.Random(5)
    logging.disable()  # each record would be kept by the test itself
    statuses: Counter[int] = Counter()

    async def send(times: int) -> int:
        for _ in range(times):
            verb, path, headers, body = drawn(chance)
            statuses[(await Exchange(app, verb, path, headers, body).answer()).status] += 1
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        async with lifespan(app):
            before = await send(REQUESTS // 4)
            grown = await send(REQUESTS) - before
    finally:
        tracemalloc.stop()
        logging.disable(logging.NOTSET)
    assert {200, 401, 404, 405, 415} <= statuses.keys()
    assert max(statuses) < 500
    assert statuses[200] > REQUESTS / 5
    assert grown < GROWTH
