"""Makes the moving picture of the inbox: `python -m tests.playground.moving_inbox` writes it into `docs/images`.

An employee asks an agent in the terminal, and the manager decides in the inbox.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from playwright.sync_api import Browser, sync_playwright

from pydantic_ai_a2a import A2AClient, Approvals, BearerAuth, Caller, Server, serve, to_a2a

from .browser import ARGUMENTS, chromium
from .moving import Film
from .pictures import IMAGES, MOVING_INBOX, travel_agent

_ALICE, _BOB = 'long-token-of-alice', 'long-token-of-bob'
_PROMPT = 'Book the hotel for two nights.'
_ANSWER = 'Two nights at the Solar do Castelo are booked.'


async def _ask(url: str) -> str:
    async with A2AClient(url, headers={'Authorization': f'Bearer {_ALICE}'}) as client:
        task_id = (await client.send(_PROMPT)).task_id or ''
        while True:
            result = await client.get(task_id)
            if result.state == 'completed':
                return result.text
            await asyncio.sleep(0.2)


def _play(film: Film, server: Server, pool: ThreadPoolExecutor) -> None:
    page = film.page
    page.goto(f'{server.docs_url}?inbox')
    page.get_by_label('Bearer token').fill(_BOB)
    page.keyboard.press('Enter')
    told = page.get_by_role('region', name='Inbox').get_by_role('status')
    told.get_by_text('Nothing waits for you.').wait_for()
    film.write('# Alice asks the travel agent, and Bob decides.')
    film.take(1.5)
    film.type(f'python ask.py "{_PROMPT}"')
    film.take(1.2)
    answer = pool.submit(asyncio.run, _ask(server.url))
    form = page.get_by_role('form', name='Approval: book')
    form.get_by_label('Reason').wait_for()
    film.take(3)
    approve = form.get_by_role('button', name='Approve')
    approve.hover()
    film.take(0.8)
    approve.click()
    told.get_by_text('Approved: book.').wait_for()
    film.take(1.2)
    film.write(answer.result())
    film.take(4)


def _film(browser: Browser) -> None:
    """Write the picture."""
    approvals = Approvals(approvers='trips:approve', show_caller=True)
    bob = Caller(id='bob', scopes=frozenset({'trips:approve'}))
    app = to_a2a(travel_agent(_ANSWER), auth=BearerAuth({_ALICE: 'alice', _BOB: bob}), approvals=approvals)
    with serve(app) as server, ThreadPoolExecutor() as pool:
        film = Film(browser)
        _play(film, server, pool)
        film.save(IMAGES / MOVING_INBOX)


def main() -> None:
    """Write the picture."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        _film(browser)
        browser.close()


if __name__ == '__main__':
    main()
