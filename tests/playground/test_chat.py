"""Conversations in the playground."""

from __future__ import annotations

import re
from asyncio import to_thread
from collections.abc import AsyncIterator
from threading import Event

from playwright.async_api import expect
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import Progress, Results, serve, to_a2a

from ..bounds import LIMIT
from .agents import keeper, scripted
from .conftest import Visit, say

DRAWINGS = """(() => {
    globalThis.began = performance.now();
    globalThis.drawings = [];
    const observer = new MutationObserver(() => globalThis.drawings.push(performance.now() - globalThis.began));
    observer.observe(document.getElementById('thread'), { childList: true, subtree: true });
})()"""


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
        await expect(log.get_by_role('heading', name='Hello')).to_have_count(2)
        await expect(page.get_by_role('navigation', name='Tasks').get_by_text('completed')).to_have_count(2)
        assert [len({task['context_id'] for task in await app.list_tasks()}), len(await app.list_tasks())] == [1, 2]


BLOCKED = """Object.defineProperty(window, 'localStorage', {
    get() { throw new DOMException('The user blocks the data of sites.', 'SecurityError'); },
})"""


async def test_a_browser_that_blocks_the_data_of_sites_has_a_chat_too(visit: Visit) -> None:
    with serve(to_a2a(Agent('test', name='keeper'))) as server:
        page = await visit(f'{server.url}docs')
        await page.add_init_script(BLOCKED)
        await page.reload()
        await say(page, 'Tidy')
        await expect(page.get_by_role('log').get_by_text('success (no tool calls)')).to_have_count(1)
        for value in ('true', 'false'):
            await page.locator('#theme').click()
            await expect(page.locator('#theme')).to_have_attribute('aria-pressed', value)
        switch = page.get_by_role('switch', name='Show tool calls and thoughts')
        await switch.click()
        await expect(switch).not_to_be_checked()


async def test_an_agent_that_does_not_stream_answers_too(visit: Visit) -> None:
    with serve(to_a2a(Agent('test', name='keeper'), results=Results(stream='off'))) as server:
        page = await visit(f'{server.url}docs')
        log = page.get_by_role('log', name='Conversation')
        for count in (1, 2):
            await say(page, f'Tidy {count}')
            await expect(log.get_by_text('success (no tool calls)')).to_have_count(count)
            await expect(page.get_by_role('navigation', name='Tasks').get_by_text('completed')).to_have_count(count)


async def test_thoughts_tool_steps_and_the_event_log_are_shown(visit: Visit) -> None:
    app = to_a2a(keeper(), results=Results(progress=Progress(thinking=True, tools=True)))
    with serve(app) as server:
        page = await visit(f'{server.url}docs')
        await page.get_by_role('button', name='Events').click()
        await say(page, 'Where?')
        step = page.get_by_role('log').get_by_role('group').filter(has_text='look_up')
        await expect(step).to_contain_text('look_updone')
        await step.get_by_text('look_up').click()
        await expect(step.get_by_role('cell')).to_have_text(['Paris'])
        await say(page, 'Think.')
        await page.get_by_role('log').get_by_text('Thought').click()
        await expect(page.get_by_text('Paris is sunny in May.').last).to_be_visible()
        events = page.get_by_role('complementary', name='Requests and events')
        await expect(events.get_by_text('POST ./message:stream')).to_have_count(2)
        await events.get_by_text('POST ./message:stream').first.click()
        await expect(events.get_by_role('group', name='JSON')).to_contain_text('"text": "Where?"')
        await events.get_by_text('statusUpdate completed').last.click()
        await expect(events.get_by_role('group', name='JSON').last).to_contain_text('TASK_STATE_COMPLETED')
        await events.get_by_role('button', name='Clear').click()
        await expect(events.get_by_role('listitem')).to_have_count(0)


async def test_two_thousand_deltas_are_drawn_at_most_ten_times_a_second(visit: Visit) -> None:
    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        for n in range(2000):
            yield f'{n} '

    with serve(to_a2a(Agent(FunctionModel(stream_function=stream)), results=Results(interval=0))) as server:
        page = await visit(f'{server.url}docs')
        await page.evaluate(DRAWINGS)
        await say(page, 'Count.')
        await expect(page.get_by_role('log').get_by_text('1998 1999')).to_have_count(1)
        await expect(page.get_by_role('navigation', name='Tasks')).to_contain_text('completed')
        drawings: list[float] = await page.evaluate('drawings')
        assert 100 * (len(drawings) - 1) <= drawings[-1]
        await page.get_by_role('button', name='Events').click()
        events = page.get_by_role('complementary', name='Requests and events')
        await expect(events.get_by_role('listitem')).to_have_count(1000)
        await expect(events).to_contain_text('the last 1000 of 2')


async def test_the_tasks_of_a_conversation_are_listed_and_a_new_chat_begins_without(visit: Visit) -> None:
    with serve(to_a2a(keeper())) as server:
        page = await visit(f'{server.url}docs')
        for text in ('Where?', 'Think.'):
            await say(page, text)
            await expect(page.locator('.prose').get_by_text('sunny')).to_have_count(1 if text == 'Where?' else 2)
        tasks = page.get_by_role('navigation', name='Tasks')
        await expect(tasks.get_by_role('button')).to_have_text(['Where?completed', 'Think.completed'])
        first = page.url
        await page.get_by_role('button', name='New chat').click()
        await expect(page.get_by_role('article', name='Task')).to_have_count(0)
        await expect(tasks.get_by_role('button')).to_have_count(0)
        assert '#' not in page.url
        await page.go_back()
        await expect(tasks.get_by_role('button')).to_have_count(2)
        assert page.url == first
        await page.go_forward()
        await expect(tasks.get_by_role('button')).to_have_count(0)
        earlier = page.get_by_role('navigation', name='Earlier conversations')
        await say(page, 'Think.')
        await expect(page.locator('.prose').get_by_text('sunny')).to_have_count(1)
        await earlier.get_by_role('link', name='Where?').click()
        await expect(tasks.get_by_role('button')).to_have_text(['Where?completed', 'Think.completed'])
        await expect(earlier.get_by_role('link')).to_have_count(1)
        await expect(earlier.get_by_role('link')).to_contain_text('Think.')
        await page.goto(page.url.replace('context=', 'context=x').replace('task=', 'task=x'))
        await expect(page.get_by_role('article', name='Task')).to_have_count(0)


async def test_a_link_to_another_conversation_works_while_the_page_draws_this_one(visit: Visit) -> None:
    with serve(to_a2a(keeper())) as server:
        page = await visit(f'{server.url}docs')
        await say(page, 'Where?')
        tasks = page.get_by_role('navigation', name='Tasks').get_by_role('button')
        await expect(tasks).to_have_text('Where?completed')
        _, _, first = page.url.partition('#')
        await page.get_by_role('button', name='New chat').click()
        await say(page, 'Think.')
        await expect(tasks).to_have_text('Think.completed')
        drawn = """async ([script, hash]) => {
            const { writePlace } = await import(script);
            location.hash = hash;
            writePlace('this', ['one']);
        }"""
        script = await page.evaluate("document.querySelector('script[type=module]').src.replace('main.js', 'place.js')")
        await page.evaluate(drawn, [script, first])
        await expect(tasks).to_have_text('Where?completed')


CODE = 'So:\n\n```python\ndef add(a, b):\n    return a + b\n```\n\n```nonsense\n<b>x</b>\n```\n'


async def test_code_has_colors_and_code_and_answers_are_copied(visit: Visit) -> None:
    with serve(to_a2a(scripted({'Code.': [CODE]}))) as server:
        page = await visit(f'{server.url}docs', permissions=['clipboard-read', 'clipboard-write'])
        await say(page, 'Code.')
        await expect(page.get_by_role('button', name='Copy answer')).to_have_count(1)
        python, plain = page.get_by_role('group', name='Code').first, page.get_by_role('group', name='Code').last
        await expect(python.locator('.hljs-keyword')).to_have_text(['def', 'return'])
        await expect(plain).to_have_text('<b>x</b>')
        await page.get_by_role('button', name='Copy', exact=True).first.click()
        await expect(page.get_by_role('button', name='Copied')).to_have_count(1)
        assert await page.evaluate('navigator.clipboard.readText()') == 'def add(a, b):\n    return a + b'
        await page.get_by_role('button', name='Copy answer').click()
        await expect(page.get_by_role('button', name='Copied').last).to_have_count(1)
        await page.wait_for_function('async (text) => (await navigator.clipboard.readText()) === text', arg=CODE)


async def test_code_gets_colors_once_its_message_is_whole_and_not_too_long(visit: Visit) -> None:
    done = Event()
    line = 'def add(): pass\n'
    blocks = [f'```python\n{line * count}```\n\n' for count in (240, 260, 240, 240, 240)]

    async def code(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        yield ''.join(blocks)
        assert await to_thread(done.wait, LIMIT)
        yield 'The end.'

    with serve(to_a2a(Agent(FunctionModel(stream_function=code)))) as server:
        page = await visit(f'{server.url}docs')
        await say(page, 'Code.')
        codes = page.get_by_role('group', name='Code')
        await expect(codes).to_have_count(5)
        await expect(page.locator('.hljs-keyword')).to_have_count(0)
        done.set()
        await expect(page.get_by_role('button', name='Copy answer')).to_have_count(1)
        await expect(codes.first.locator('.hljs-keyword')).to_have_count(480)
        colored = [await codes.nth(n).locator('.hljs-keyword').count() > 0 for n in range(5)]
        assert colored == [True, False, True, True, False]


async def test_an_answer_has_its_tokens_and_seconds(visit: Visit) -> None:
    with serve(to_a2a(keeper())) as server:
        page = await visit(f'{server.url}docs')
        await say(page, 'Think.')
        facts = page.get_by_role('article', name='Task').locator('.usage')
        await expect(facts).to_have_text(re.compile(r'\d+ tokens in, \d+ out · \d+\.\d\ss$'))
        await page.reload()
        await expect(facts).to_have_text(re.compile(r'\d+ tokens in, \d+ out$'))
    with serve(to_a2a(keeper(), results=Results(run_metadata=False))) as server:
        page = await visit(f'{server.url}docs')
        await say(page, 'Think.')
        await expect(page.get_by_role('article', name='Task').locator('.usage')).to_have_text(
            re.compile(r'^\d+\.\d\ss$')
        )


async def test_light_and_dark_are_switched_and_remembered(visit: Visit) -> None:
    with serve(to_a2a(keeper())) as server:
        page = await visit(f'{server.url}docs', color_scheme='dark')
        body, switch = page.locator('body'), page.get_by_role('button', name='Dark colors')
        await expect(switch).to_have_attribute('aria-pressed', 'true')
        await expect(body).to_have_css('background-color', 'rgb(20, 22, 29)')
        await switch.click()
        for _ in range(2):
            await expect(switch).to_have_attribute('aria-pressed', 'false')
            await expect(body).to_have_css('background-color', 'rgb(255, 255, 255)')
            await page.reload()
