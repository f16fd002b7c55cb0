"""Conversations in the playground, and their layout."""

from __future__ import annotations

import re
from asyncio import to_thread
from collections.abc import AsyncIterator
from threading import Event

from playwright.async_api import async_playwright, expect
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import A2AClient, Progress, Results, serve, to_a2a

from ..bounds import LIMIT
from .agents import file_keeper, scripted
from .browser import ARGUMENTS, chromium
from .conftest import Visit, open_page_at, send_message

DRAWINGS = """(() => {
    globalThis.began = performance.now();
    globalThis.drawings = [];
    const observer = new MutationObserver(() => globalThis.drawings.push(performance.now() - globalThis.began));
    observer.observe(document.getElementById('thread'), { childList: true, subtree: true });
})()"""


async def markdown(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
    for piece in ('# Hel', 'lo\n\nAll **do', 'ne** now.\n\n| a | b |\n|---|---|\n| 1 | 2 |'):
        yield piece


async def test_markdown_conversation_survives_reload(open_playground: Visit) -> None:
    app = to_a2a(Agent(FunctionModel(stream_function=markdown), name='keeper', description='Keeps files tidy.'))
    page = await open_playground(app)
    await expect(page).to_have_title('keeper · Playground')
    await expect(page.get_by_role('complementary', name='Agent')).to_contain_text('Keeps files tidy.')
    await send_message(page, 'Tidy *up*')
    log = page.get_by_role('log', name='Conversation')
    for _ in range(2):
        await expect(log.get_by_text('Tidy *up*')).to_have_count(1)
        await expect(log.get_by_role('heading', name='Hello')).to_have_count(1)
        await expect(log.get_by_text('done', exact=True)).to_have_css('font-weight', '700')
        await expect(log.get_by_role('cell')).to_have_text(['1', '2'])
        await expect(page.get_by_role('navigation', name='Tasks')).to_contain_text('completed')
        await page.reload()
    await send_message(page, 'Again')
    await expect(log.get_by_role('heading', name='Hello')).to_have_count(2)
    await expect(page.get_by_role('navigation', name='Tasks').get_by_text('completed')).to_have_count(2)
    assert [len({task['context_id'] for task in await app.list_tasks()}), len(await app.list_tasks())] == [1, 2]


BLOCKED = """Object.defineProperty(window, 'localStorage', {
    get() { throw new DOMException('The user blocks the data of sites.', 'SecurityError'); },
})"""


async def test_chat_works_without_local_storage(open_playground: Visit) -> None:
    page = await open_playground(to_a2a(Agent('test', name='keeper')))
    await page.add_init_script(BLOCKED)
    await page.reload()
    await send_message(page, 'Tidy')
    await expect(page.get_by_role('log').get_by_text('success (no tool calls)')).to_have_count(1)
    for value in ('true', 'false'):
        await page.locator('#theme').click()
        await expect(page.locator('#theme')).to_have_attribute('aria-pressed', value)
    switch = page.get_by_role('switch', name='Show tool calls and thoughts')
    await switch.click()
    await expect(switch).not_to_be_checked()


async def test_chat_works_without_streaming(open_playground: Visit) -> None:
    page = await open_playground(to_a2a(Agent('test', name='keeper'), results=Results(stream='off')))
    log = page.get_by_role('log', name='Conversation')
    for count in (1, 2):
        await send_message(page, f'Tidy {count}')
        await expect(log.get_by_text('success (no tool calls)')).to_have_count(count)
        await expect(page.get_by_role('navigation', name='Tasks').get_by_text('completed')).to_have_count(count)


async def test_thoughts_tool_steps_and_events_are_shown(open_playground: Visit) -> None:
    page = await open_playground(to_a2a(file_keeper(), results=Results(progress=Progress(thinking=True, tools=True))))
    await page.get_by_role('button', name='Events').click()
    await send_message(page, 'Where?')
    step = page.get_by_role('log').get_by_role('group').filter(has_text='look_up')
    await expect(step).to_contain_text('look_updone')
    await step.get_by_text('look_up').click()
    await expect(step.get_by_role('cell')).to_have_text(['Paris'])
    await send_message(page, 'Think.')
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


async def test_stream_is_drawn_at_most_every_100_ms(open_playground: Visit) -> None:
    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        for n in range(2000):
            yield f'{n} '

    page = await open_playground(to_a2a(Agent(FunctionModel(stream_function=stream)), results=Results(interval=0)))
    await page.evaluate(DRAWINGS)
    await send_message(page, 'Count.')
    await expect(page.get_by_role('log').get_by_text('1998 1999')).to_have_count(1)
    await expect(page.get_by_role('navigation', name='Tasks')).to_contain_text('completed')
    drawings: list[float] = await page.evaluate('drawings')
    assert 100 * (len(drawings) - 1) <= drawings[-1]
    await page.get_by_role('button', name='Events').click()
    events = page.get_by_role('complementary', name='Requests and events')
    await expect(events.get_by_role('listitem')).to_have_count(1000)
    await expect(events).to_contain_text('the last 1000 of 2')


async def test_conversation_of_several_pages_is_shown_whole(visit_url: Visit) -> None:
    app = to_a2a(Agent('test', name='keeper'))
    with serve(app) as server:
        async with A2AClient(server.url) as client:
            for n in range(51):
                await client.send(f'Message {n}.', context_id='long')
        page = await visit_url(f'{server.url}docs#context=long')
        tasks = page.get_by_role('log').get_by_role('article', name='Task')
        await expect(tasks.last).to_contain_text('Message 50.')
        assert await tasks.count() == 51
        await expect(tasks.first).to_contain_text('Message 0.')


async def test_url_names_newest_tasks(visit_url: Visit) -> None:
    with serve(to_a2a(Agent('test', name='keeper'))) as server:
        async with A2AClient(server.url) as client:
            ids = [(await client.send('Hello.', context_id='long')).task_id for _ in range(31)]
        page = await visit_url(f'{server.url}docs#context=long')
        await expect(page).to_have_url(re.compile('task='))
    assert re.findall('task=([^&]+)', page.url) == ids[1:]


async def test_new_chat_starts_without_tasks_of_earlier_conversation(open_playground: Visit) -> None:
    page = await open_playground(to_a2a(file_keeper()))
    for text in ('Where?', 'Think.'):
        await send_message(page, text)
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
    await send_message(page, 'Think.')
    await expect(page.locator('.prose').get_by_text('sunny')).to_have_count(1)
    await earlier.get_by_role('link', name='Where?').click()
    await expect(tasks.get_by_role('button')).to_have_text(['Where?completed', 'Think.completed'])
    await expect(earlier.get_by_role('link')).to_have_count(1)
    await expect(earlier.get_by_role('link')).to_contain_text('Think.')
    await page.goto(page.url.replace('context=', 'context=x').replace('task=', 'task=x'))
    await expect(page.get_by_role('article', name='Task')).to_have_count(0)


async def test_link_to_earlier_conversation_opens_despite_url_update(open_playground: Visit) -> None:
    page = await open_playground(to_a2a(file_keeper()))
    await send_message(page, 'Where?')
    tasks = page.get_by_role('navigation', name='Tasks').get_by_role('button')
    await expect(tasks).to_have_text('Where?completed')
    _, _, first = page.url.partition('#')
    await page.get_by_role('button', name='New chat').click()
    await send_message(page, 'Think.')
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


async def test_code_is_highlighted_and_copied(open_playground: Visit) -> None:
    page = await open_playground(to_a2a(scripted({'Code.': [CODE]})), permissions=['clipboard-read', 'clipboard-write'])
    await send_message(page, 'Code.')
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


async def test_code_is_highlighted_within_limits_after_answer_completes(open_playground: Visit) -> None:
    done = Event()
    line = 'def add(): pass\n'
    blocks = [f'```python\n{line * count}```\n\n' for count in (240, 260, 240, 240, 240)]

    async def code(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        yield ''.join(blocks)
        assert await to_thread(done.wait, LIMIT)
        yield 'The end.'

    page = await open_playground(to_a2a(Agent(FunctionModel(stream_function=code))))
    await send_message(page, 'Code.')
    codes = page.get_by_role('group', name='Code')
    await expect(codes).to_have_count(5)
    await expect(page.locator('.hljs-keyword')).to_have_count(0)
    done.set()
    await expect(page.get_by_role('button', name='Copy answer')).to_have_count(1)
    await expect(codes.first.locator('.hljs-keyword')).to_have_count(480)
    colored = [await codes.nth(n).locator('.hljs-keyword').count() > 0 for n in range(5)]
    assert colored == [True, False, True, True, False]


async def test_answer_shows_token_usage_and_seconds(visit_url: Visit) -> None:
    with serve(to_a2a(file_keeper())) as server:
        page = await visit_url(f'{server.url}docs')
        await send_message(page, 'Think.')
        facts = page.get_by_role('article', name='Task').locator('.usage')
        await expect(facts).to_have_text(re.compile(r'\d+ tokens in, \d+ out · \d+\.\d\ss$'))
        await page.reload()
        await expect(facts).to_have_text(re.compile(r'\d+ tokens in, \d+ out$'))
    with serve(to_a2a(file_keeper(), results=Results(run_metadata=False))) as server:
        page = await visit_url(f'{server.url}docs')
        await send_message(page, 'Think.')
        await expect(page.get_by_role('article', name='Task').locator('.usage')).to_have_text(
            re.compile(r'^\d+\.\d\ss$')
        )


async def test_color_scheme_is_switched_and_remembered(open_playground: Visit) -> None:
    page = await open_playground(to_a2a(file_keeper()), color_scheme='dark')
    body, switch = page.locator('body'), page.get_by_role('button', name='Dark colors')
    await expect(switch).to_have_attribute('aria-pressed', 'true')
    await expect(body).to_have_css('background-color', 'rgb(20, 22, 29)')
    await switch.click()
    for _ in range(2):
        await expect(switch).to_have_attribute('aria-pressed', 'false')
        await expect(body).to_have_css('background-color', 'rgb(255, 255, 255)')
        await page.reload()


# --- the layout, with scroll bars, and with long answers, tables and narrow screens

LONG = '\n\n'.join(f'Paragraph {n} of a long answer, which fills a line or two of the page.' for n in range(60))
TABLE = '| Word | Number |\n|:---|---:|\n| ' + 'Donaudampfschifffahrtsgesellschaft ' * 3 + '| 1234567 |\n'
SCROLLS = 'document.scrollingElement.scrollHeight - document.scrollingElement.clientHeight'
TOP = 'document.querySelector("header").getBoundingClientRect().top'
WIDTHS = '[innerWidth - document.documentElement.clientWidth, thread.offsetWidth - thread.clientWidth > 0]'


async def test_only_conversation_scrolls() -> None:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=chromium(), args=ARGUMENTS, ignore_default_args=['--hide-scrollbars']
        )
        with serve(to_a2a(scripted({'Talk.': [LONG]}))) as server:
            async with open_page_at(browser, f'{server.url}docs', 0, {}) as page:
                for count in (1, 2, 3):
                    await send_message(page, 'Talk.')
                    await expect(page.get_by_role('log').get_by_text('Paragraph 59 of')).to_have_count(count)
                assert await page.evaluate(SCROLLS) == 0
                assert await page.evaluate(WIDTHS) == [0, True]
                await page.get_by_role('textbox', name='Message', exact=True).hover()
                await page.mouse.wheel(0, 2_000)
                await page.evaluate('new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))')
                assert await page.evaluate(TOP) == 0
        await browser.close()


async def test_conversation_end_stays_in_view_if_events_open(open_playground: Visit) -> None:
    page = await open_playground(to_a2a(scripted({'Talk.': [LONG]})), viewport={'width': 1080, 'height': 620})
    await send_message(page, 'Talk.')
    copy = page.get_by_role('button', name='Copy answer')
    await expect(copy).to_be_in_viewport()
    await page.get_by_role('button', name='Events').click()
    await expect(page.get_by_text('statusUpdate completed')).to_be_visible()
    await expect(copy).to_be_in_viewport()
    await page.get_by_role('log').hover()
    await page.mouse.wheel(0, -500)
    await expect(copy).not_to_be_in_viewport()
    await page.get_by_role('button', name='Events').click()
    await expect(page.get_by_text('statusUpdate completed')).to_be_hidden()
    await expect(copy).not_to_be_in_viewport()


async def test_table_keeps_words_and_alignment_on_narrow_screen(open_playground: Visit) -> None:
    page = await open_playground(to_a2a(scripted({'Show.': [TABLE]})), viewport={'width': 390, 'height': 700})
    await send_message(page, 'Show.')
    await expect(page.get_by_role('status').get_by_text('completed')).to_have_count(1)
    number = page.get_by_role('cell', name='1234567')
    sides = [(number, 'right'), (page.get_by_role('columnheader', name='Number'), 'right')]
    for cell, side in [*sides, (page.get_by_role('columnheader', name='Word'), 'left')]:
        await expect(cell).to_have_css('text-align', re.compile(side))
    for cell in (number, page.get_by_role('cell', name='Donau')):
        lines = await cell.evaluate(
            '(cell) => { const range = document.createRange(); range.selectNodeContents(cell);'
            ' return new Set([...range.getClientRects()].map((box) => box.top)).size; }'
        )
        assert lines == (1 if cell is number else 3)


async def test_task_click_closes_agent_panel_on_narrow_screen(open_playground: Visit) -> None:
    page = await open_playground(to_a2a(file_keeper()), viewport={'width': 390, 'height': 700})
    await send_message(page, 'Where?')
    await expect(page.get_by_text("Results: ['It is sunny in Paris.']")).to_have_count(1)
    await page.get_by_role('button', name='Agent').click()
    await page.get_by_role('navigation', name='Tasks').get_by_role('button').click()
    await expect(page.get_by_role('complementary', name='Agent')).to_be_hidden()
    await expect(page.get_by_role('article', name='Task')).to_be_in_viewport()
