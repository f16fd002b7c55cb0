"""The layout of the playground, with scroll bars, and with long answers, tables and narrow screens."""

from __future__ import annotations

import re

from playwright.async_api import async_playwright, expect

from pydantic_ai_a2a import serve, to_a2a

from .agents import keeper, scripted
from .browser import ARGUMENTS, chromium
from .conftest import Visit, say, visiting

LONG = '\n\n'.join(f'Paragraph {n} of a long answer, which fills a line or two of the page.' for n in range(60))
TABLE = '| Word | Number |\n|:---|---:|\n| ' + 'Donaudampfschifffahrtsgesellschaft ' * 3 + '| 1234567 |\n'
SCROLLS = 'document.scrollingElement.scrollHeight - document.scrollingElement.clientHeight'
TOP = 'document.querySelector("header").getBoundingClientRect().top'
WIDTHS = '[innerWidth - document.documentElement.clientWidth, thread.offsetWidth - thread.clientWidth > 0]'


async def test_only_the_conversation_scrolls_and_the_header_stays() -> None:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=chromium(), args=ARGUMENTS, ignore_default_args=['--hide-scrollbars']
        )
        with serve(to_a2a(scripted({'Talk.': [LONG]}))) as server:
            async with visiting(browser, f'{server.url}docs', 0, {}) as page:
                for count in (1, 2, 3):
                    await say(page, 'Talk.')
                    await expect(page.get_by_role('log').get_by_text('Paragraph 59 of')).to_have_count(count)
                assert await page.evaluate(SCROLLS) == 0
                assert await page.evaluate(WIDTHS) == [0, True]
                await page.get_by_role('textbox', name='Message', exact=True).hover()
                await page.mouse.wheel(0, 2_000)
                await page.evaluate('new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))')
                assert await page.evaluate(TOP) == 0
        await browser.close()


async def test_the_end_of_the_conversation_stays_in_view_beside_the_events(visit: Visit) -> None:
    with serve(to_a2a(scripted({'Talk.': [LONG]}))) as server:
        page = await visit(f'{server.url}docs', viewport={'width': 1080, 'height': 620})
        await say(page, 'Talk.')
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


async def test_a_table_breaks_no_words_and_keeps_its_alignment(visit: Visit) -> None:
    with serve(to_a2a(scripted({'Show.': [TABLE]}))) as server:
        page = await visit(f'{server.url}docs', viewport={'width': 390, 'height': 700})
        await say(page, 'Show.')
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


async def test_a_press_on_a_task_leaves_the_panel_of_a_narrow_screen(visit: Visit) -> None:
    with serve(to_a2a(keeper())) as server:
        page = await visit(f'{server.url}docs', viewport={'width': 390, 'height': 700})
        await say(page, 'Where?')
        await expect(page.get_by_text("Results: ['It is sunny in Paris.']")).to_have_count(1)
        await page.get_by_role('button', name='Agent').click()
        await page.get_by_role('navigation', name='Tasks').get_by_role('button').click()
        await expect(page.get_by_role('complementary', name='Agent')).to_be_hidden()
        await expect(page.get_by_role('article', name='Task')).to_be_in_viewport()
