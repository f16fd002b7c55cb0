"""A client that goes before its body was read."""

from __future__ import annotations

import asyncio

from starlette.types import Message

from pydantic_ai_a2a.http.base import Listener


async def test_what_comes_while_a_client_is_watched_is_kept() -> None:
    messages: asyncio.Queue[Message] = asyncio.Queue()
    listener = Listener(messages.get)
    first = asyncio.create_task(listener.gone())
    await asyncio.sleep(0)
    second = asyncio.create_task(listener.gone())  # waits for the same message
    await asyncio.sleep(0)
    await messages.put({'type': 'http.request', 'body': b'a', 'more_body': True})
    await messages.put({'type': 'http.request', 'body': b'b'})
    for _ in range(10):
        await asyncio.sleep(0)
    assert [first.done(), second.done(), messages.qsize()] == [False, False, 1]
    assert [(await listener.receive())['body'] for _ in range(2)] == [b'a', b'b']
    third = asyncio.create_task(listener.gone())
    await messages.put({'type': 'http.disconnect'})
    await third
    for task in (first, second):
        task.cancel()
    listener.close()
