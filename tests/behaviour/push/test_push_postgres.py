"""Push notifications of tasks that are kept in PostgreSQL."""

from __future__ import annotations

from pydantic_ai import Agent

from pydantic_ai_a2a import Push

from ...fixed import fixed
from ...webhooks import webhook
from ..stage import serving


async def test_every_event_arrives_in_order(postgres_url: str) -> None:
    push = fixed(Push, private_hosts=['127.0.0.1'], backoff=0.0001)
    async with webhook(500, 200) as hook, serving(Agent('test'), backend=postgres_url, push=push) as client:
        for n in range(1, 31):
            await client.send(taskPushNotificationConfig={'url': hook.url})
            received = await hook.got(3 * n + 1)
            told = [each.says for each in received][-3:]
            assert told == ['WORKING', 'success (no tool calls) lastChunk', 'COMPLETED']
    assert len({each.id for each in hook.received}) == 90
