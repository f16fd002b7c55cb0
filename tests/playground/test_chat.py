"""Conversations in the playground."""

from __future__ import annotations

from collections.abc import AsyncIterator

from playwright.async_api import expect
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import serve, to_a2a

from .conftest import Visit, say


async def markdown(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
    for piece in ('# Hel', 'lo\n\nAll **do', 'ne** now.\n\n| a | b |\n|---|---|\n| 1 | 2 |'):
        yield piece


async def test_a_chat_draws_markdown_and_a_reload_keeps_the_conversation(visit: Visit) -> None:
    app = to_a2a(Agent(FunctionModel(stream_function=markdown), name='keeper', description='Keeps files tidy.'))
    with serve(app) as server:
        page = await visit(f'{server.url}docs')
        await expect(page).to_have_title('keeper · Playground')
        await expect(page.get_by_role('complementary', name='Agent')).to_contain_text('Keeps files tidy.')
        await say(page, 'Tidy *up*')
        log = page.get_by_role('log', name='Conversation')
        for _ in range(2):
            await expect(log.get_by_text('Tidy *up*')).to_have_count(1)
            await expect(log.get_by_role('heading', name='Hello')).to_have_count(1)
            await expect(log.get_by_text('done', exact=True)).to_have_css('font-weight', '700')
            await expect(log.get_by_role('cell')).to_have_text(['1', '2'])
            await expect(page.get_by_role('navigation', name='Tasks')).to_contain_text('completed')
            await page.reload()
        await say(page, 'Again')
        await expect(log.get_by_role('region', name='Task')).to_have_count(2)
        assert [len({task['context_id'] for task in await app.list_tasks()}), len(await app.list_tasks())] == [1, 2]
