"""The web page of "Decide on approvals", in Chromium: it calls the agent of the guide from another origin."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from runpy import run_path

from playwright.async_api import Page, async_playwright, expect

from pydantic_ai_a2a import A2AClient, serve
from pydantic_ai_a2a.errors import UnsupportedOperationError

from ..bounds import LIMIT
from ..playground.agents import scripted, tool_call
from ..playground.browser import ARGUMENTS, chromium
from .blocks import ROOT, blocks
from .folder_server import served

ALICE, BOB = 'long-token-of-alice', 'long-token-of-bob'
CENTS = 738529527931269425
"""More digits than a number of JavaScript has."""
SCRIPT = {'Pay.': [tool_call('pay', f'{{"invoice": "<b>rent</b>\u202e", "cents": {CENTS}}}')]}


@asynccontextmanager
async def open_guide(folder: Path) -> AsyncGenerator[tuple[str, Page]]:
    """Serve the agent and the web page of the guide; yield the URL of the agent and the opened page."""
    programs = {block.title: block.text for block in blocks(ROOT / 'docs' / 'decide.md')}
    program, html = folder / 'cashier.py', folder / 'inbox.html'
    with served(folder) as page_url:
        program.write_text(programs['cashier.py'].replace('http://127.0.0.1:9000', page_url.rstrip('/')))
        names = run_path(str(program))
        names['agent'].model = scripted(SCRIPT).model
        with serve(names['app']) as server:
            html.write_text(programs['inbox.html'].replace('http://127.0.0.1:8000/', server.url))
            async with async_playwright() as playwright:
                browser = await playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
                page = await browser.new_page()
                page.set_default_timeout(LIMIT * 1000)
                await page.goto(f'{page_url}inbox.html')
                yield server.url, page
                await browser.close()


async def show_waiting(page: Page, token: str) -> None:
    await page.get_by_label('Token').fill(token)
    await page.keyboard.press('Enter')


async def text_of_end(client: A2AClient, task_id: str) -> str:
    with suppress(UnsupportedOperationError):  # if the task has ended
        async for _ in client.subscribe(task_id):
            pass
    return (await client.get(task_id)).text


async def test_web_page_of_guide_decides_approvals(tmp_path: Path) -> None:
    expect.set_options(timeout=LIMIT * 1000)
    async with open_guide(tmp_path) as (url, page):
        main, boxes = page.get_by_role('main'), page.get_by_role('group')
        await show_waiting(page, 'wrong-token')
        await expect(main).to_contain_text('Error: ')
        await show_waiting(page, BOB)
        await expect(main).to_have_text('Nothing waits for you.')
        async with A2AClient(url, auth=ALICE) as alice, A2AClient(url, auth=BOB) as bob:
            tasks = [(await alice.send('Pay.')).task_id or '' for _ in range(3)]
            await show_waiting(page, ALICE)
            await expect(main).to_have_text('Nothing waits for you.')
            await show_waiting(page, BOB)
            await expect(boxes).to_have_count(3)
            shown = f'{{\n  "invoice": "<b>rent</b>\\u{{202e}}",\n  "cents": {CENTS}\n}}'
            await expect(boxes.first.locator('pre')).to_contain_text(shown)
            await (await bob.get(tasks[0])).deny('Bob was faster.')
            for box, decision, told in zip(
                await boxes.all(),
                ['approve', 'deny', 'approve'],
                ['Sent: approve', 'Sent: deny', 'Error: '],
                strict=True,
            ):
                await box.get_by_role('button', name=decision).click()
                await expect(box).to_contain_text(told)
                await expect(box.get_by_role('button', name=decision)).to_be_disabled()
            texts = [await text_of_end(alice, task_id) for task_id in tasks]
        assert [f'{CENTS} cents are paid for' in text for text in texts] == [False, False, True]
