"""The official client of A2A 0.3, told by lines of JSON what to do; `official_0_3.py` runs it where it is installed.

A line in is `{"id", "call", "params"}`. What comes of it goes out as lines `{"id", "item"}`, then `{"id", "end"}` with
the error if there was one. The end of the input ends the program.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import httpx
from a2a.client import A2ACardResolver, A2AClientError, Client, ClientConfig, ClientFactory, create_text_message_object
from a2a.types import (
    GetTaskPushNotificationConfigParams,
    Message,
    MessageSendConfiguration,
    Part,
    PushNotificationConfig,
    Role,
    TaskIdParams,
    TaskPushNotificationConfig,
    TaskQueryParams,
)


def written(value: Any) -> Any:
    return value.model_dump(mode='json', exclude_none=True)


def message(text: str | None, parts: list[Any], options: dict[str, Any]) -> Message:
    if text is not None:
        made = create_text_message_object(content=text)
    else:
        made = Message(role=Role.user, parts=[Part.model_validate(part) for part in parts], message_id=uuid4().hex)
    return made.model_copy(update=options)


class Calls:
    """What the client can be told to do."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def card(self) -> AsyncIterator[Any]:
        yield written(await self._client.get_card())

    async def send(
        self,
        text: str | None = None,
        parts: list[Any] | None = None,
        configuration: dict[str, Any] | None = None,
        **options: Any,
    ) -> AsyncIterator[Any]:
        how = MessageSendConfiguration.model_validate(configuration) if configuration else None
        async for event in self._client.send_message(message(text, parts or [], options), configuration=how):
            yield self._pair(event)

    async def resubscribe(self, id: str) -> AsyncIterator[Any]:
        async for event in self._client.resubscribe(TaskIdParams(id=id)):
            yield self._pair(event)

    async def get(self, **params: Any) -> AsyncIterator[Any]:
        yield written(await self._client.get_task(TaskQueryParams(**params)))

    async def cancel(self, id: str) -> AsyncIterator[Any]:
        yield written(await self._client.cancel_task(TaskIdParams(id=id)))

    async def push(self, id: str, url: str) -> AsyncIterator[Any]:
        config = TaskPushNotificationConfig(task_id=id, push_notification_config=PushNotificationConfig(url=url))
        yield written(await self._client.set_task_callback(config))

    async def pushed(self, **params: Any) -> AsyncIterator[Any]:
        yield written(await self._client.get_task_callback(GetTaskPushNotificationConfigParams(**params)))

    @staticmethod
    def _pair(event: Any) -> Any:
        task, update = event
        return {'task': written(task), 'update': update and written(update)}


def say(id: int, **what: Any) -> None:
    print(json.dumps({'id': id, **what}), flush=True)


async def perform(calls: Calls, id: int, call: str, params: dict[str, Any]) -> None:
    error = None
    try:
        async for item in getattr(calls, call)(**params):
            say(id, item=item)
    except A2AClientError as raised:
        code = getattr(getattr(raised, 'error', None), 'code', None)
        error = {'type': type(raised).__name__, 'code': code, 'text': str(raised)}
    say(id, end=error)


async def main(url: str, config: dict[str, Any]) -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async with httpx.AsyncClient(timeout=None) as http, asyncio.TaskGroup() as group:
        card = await A2ACardResolver(http, url).get_agent_card()
        calls = Calls(ClientFactory(ClientConfig(httpx_client=http, **config)).create(card))
        running = [group.create_task(perform(calls, **json.loads(line))) async for line in reader]
        for task in running:
            task.cancel()


logging.basicConfig(level=logging.WARNING)
asyncio.run(main(sys.argv[1], json.loads(sys.argv[2])))
