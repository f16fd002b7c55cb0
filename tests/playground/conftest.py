"""A browser for the tests of the playground. Each visit has a context of its own, and is judged at its end."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Browser, ConsoleMessage, Page, Request, Route, async_playwright, expect

from pydantic_ai_a2a import serve

from ..bounds import LIMIT
from .browser import ARGUMENTS, chromium

Visit = Callable[..., Awaitable[Page]]
"""Opens a page: of a URL with `visit`, of an app with `playground`."""


@pytest.fixture(scope='package')
async def browser() -> AsyncGenerator[Browser]:
    """The Chromium of this machine."""
    program = chromium()
    expect.set_options(timeout=LIMIT * 1000)
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield started
        await started.close()


@pytest.fixture
async def visit_url(browser: Browser) -> AsyncGenerator[Visit]:
    """Opens a page in a context of its own. Chromium logs so many refused requests; None: any number."""
    async with AsyncExitStack() as stack:

        async def open_page(url: str, *, failures: int | None = 0, **options: Any) -> Page:
            return await stack.enter_async_context(open_page_at(browser, url, failures, options))

        yield open_page


@pytest.fixture
async def open_playground(browser: Browser) -> AsyncGenerator[Visit]:
    """Serves an app until the end of the test, and opens its page, with the options of a visit."""
    async with AsyncExitStack() as stack:

        async def serve_and_open(app: Any, *, failures: int | None = 0, **options: Any) -> Page:
            url = stack.enter_context(serve(app)).url
            return await stack.enter_async_context(open_page_at(browser, f'{url}docs', failures, options))

        yield serve_and_open


@asynccontextmanager
async def open_page_at(
    browser: Browser, url: str, failures: int | None, options: dict[str, Any]
) -> AsyncGenerator[Page]:
    """Open a page, and at the end of the visit see that the page logged nothing, and called no other host."""
    context = await browser.new_context(**options)
    context.set_default_timeout(LIMIT * 1000)
    page = await context.new_page()
    messages: list[str] = []
    hosts: set[str] = set()

    def note_message(message: ConsoleMessage) -> None:
        messages.append(message.text)

    def note_request(request: Request) -> None:
        parts = urlsplit(request.url)
        hosts.add(f'{parts.scheme}://{parts.netloc}')

    page.on('console', note_message)
    page.on('pageerror', lambda error: messages.append(str(error)))
    page.on('dialog', lambda dialog: messages.append(f'a dialog: {dialog.message}'))
    page.on('request', note_request)
    await page.goto(url)
    yield page
    await context.close()
    failed = [message for message in messages if message.startswith('Failed to load resource')]
    assert [message for message in messages if message not in failed] == []
    # Errors of the network are not counted: the server of a test ends before the visit.
    refused = [message for message in failed if 'the server responded with a status of' in message]
    assert failures is None or len(refused) == failures, messages
    assert {host for host in hosts if not host.startswith('blob:')} == {
        f'{urlsplit(url).scheme}://{urlsplit(url).netloc}'
    }


async def send_message(page: Page, text: str) -> None:
    """Send a message by the message field."""
    await page.get_by_role('textbox', name='Message', exact=True).fill(text)
    await page.keyboard.press('Enter')


async def sign_in(page: Page, token: str) -> None:
    """Send a token by the form for credentials."""
    await page.get_by_role('form', name='Credentials').get_by_label('Bearer token').fill(token)
    await page.keyboard.press('Enter')


async def lose_answer(route: Route) -> None:
    """Let a request reach the server, and lose its answer."""
    await route.fetch(timeout=LIMIT * 1000)
    await route.abort()


async def leave_out_replay(route: Route) -> None:
    """Let an agent card reach the page without the extension for replay."""
    answer = await route.fetch(timeout=LIMIT * 1000)
    await route.fulfill(response=answer, json={**await answer.json(), 'capabilities': {'streaming': True}})
