"""The inbox of the playground: what waits for the caller, and decisions about it."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from fastapi import FastAPI
from playwright.async_api import Locator, Page, Route, expect
from pydantic_ai import Tool
from starlette.requests import Request

from pydantic_ai_a2a import (
    A2AClient,
    Access,
    Approvals,
    BearerAuth,
    Caller,
    InputRequired,
    Postgres,
    WaitingTask,
    Workers,
    mount,
    serve,
    to_a2a,
)
from pydantic_ai_a2a.server.service import approver_lists

from ..agents import clerk_agent
from ..bounds import LIMIT
from ..cases import each_case
from ..postgres import postgres_server
from ..reserved_ports import port_of, reserved_port
from .agents import agent_with_approval, file_keeper, scripted, tool_call
from .conftest import Visit, leave_out_replay, lose_answer, send_message, sign_in

ANN, BOSS, CHIEF, EVE = (f'a-long-secret-token-of-{name}' for name in ('ann', 'boss', 'chief', 'eve'))
MANAGERS = {
    token: Caller(id=name, scopes=frozenset({'files:approve'})) for token, name in ((BOSS, 'boss'), (CHIEF, 'chief'))
}
SCROLL_POSITION = "document.getElementById('waiting').scrollTop"
HIDE_TAB = """(hidden) => {
    Object.defineProperty(document, 'hidden', {configurable: true, get: () => hidden});
    document.dispatchEvent(new Event('visibilitychange'));
}"""
LISTS = re.compile(r'/tasks\?status=')


def guarded_app(**options: Any) -> Any:
    """An app whose managers decide about the approvals of all callers."""
    approvals = options.pop('approvals', Approvals(approvers='files:approve', show_caller=True))
    auth = BearerAuth({ANN: 'ann', EVE: 'eve', **MANAGERS})
    return to_a2a(file_keeper(), auth=auth, approvals=approvals, **options)


def client_of(url: str, token: str | None) -> A2AClient:
    return A2AClient(url, headers={'Authorization': f'Bearer {token}'} if token else None)


async def ask(url: str, text: str, token: str | None = None) -> str:
    """Send a message whose task waits, and return the id of the task."""
    async with client_of(url, token) as client:
        return (await client.send(text)).task_id or ''


async def state_of_task(url: str, task_id: str) -> Any:
    """The state of a task of ann."""
    async with client_of(url, ANN) as client:
        return (await client.get(task_id)).state


def inbox(page: Page) -> Locator:
    return page.get_by_role('region', name='Inbox')


def form(page: Page, name: str = 'Approval: delete_file') -> Locator:
    return inbox(page).get_by_role('form', name=name).and_(page.locator('form:not([inert])'))


def notice(page: Page) -> Locator:
    return inbox(page).get_by_role('status')


async def open_inbox(page: Page) -> None:
    await page.get_by_role('button', name='Inbox').click()


async def inbox_of(visit_url: Visit, url: str, token: str, **options: Any) -> Page:
    """The inbox of a caller who signs in."""
    page = await visit_url(f'{url}docs?inbox', **options)
    await sign_in(page, token)
    return page


async def inbox_with_set_clock(visit_url: Visit, url: str, **options: Any) -> Page:
    """An inbox whose clock stands still, but for the steps of the test.

    The inbox counts a step during one of its looks as time that this look has taken. So a test waits for the end of a
    look, which the notice tells, before it sets the clock forward.
    """
    page = await visit_url(f'{url}docs', **options)
    await page.goto('about:blank')  # Else the jump of the clock would set off timers of the page that is left.
    await page.clock.install(time=0)
    await page.clock.pause_at(LIMIT)  # seconds, far ahead of a slow machine; the steps of tests are milliseconds
    await page.goto(f'{url}docs?inbox')
    return page


def requests_for_lists(page: Page) -> list[str]:
    """The URLs of all lists that the page asks for from now on."""
    urls: list[str] = []
    page.on('request', lambda request: urls.append(request.url) if LISTS.search(request.url) else None)
    return urls


async def press_tab_until_focused(page: Page, element: Locator) -> None:
    for _ in range(100):
        if await element.evaluate('(element) => element === document.activeElement'):
            return
        await page.keyboard.press('Tab')
    raise AssertionError('the key Tab does not reach the element')


async def look_again(page: Page) -> None:
    """Let the shown inbox look at once."""
    async with page.expect_response(re.compile('status=TASK_STATE_AUTH_REQUIRED')):
        for _ in range(2):
            await open_inbox(page)


async def test_own_tasks_are_counted_and_answered(open_playground: Visit) -> None:
    app = to_a2a(file_keeper())
    page = await open_playground(app)
    for text in ('Tidy up.', 'Pizza.', 'Name it.', 'Mail.'):
        await page.get_by_role('button', name='New chat').click()
        await send_message(page, text)
        await expect(page.get_by_role('log').get_by_role('form')).to_have_count(1)
    await expect(page).to_have_title('(4) keeper · Playground')
    await open_inbox(page)
    await expect(notice(page)).to_have_text('4 tasks wait for you.')
    await expect(inbox(page).get_by_text('Since')).to_have_count(4)
    await form(page).get_by_label('path').fill('older.txt')
    await form(page).get_by_role('button', name='Approve').click()
    await expect(notice(page)).to_have_text('Approved: delete_file. 3 tasks wait for you.')
    name = form(page, 'Question: ask_name')
    await name.get_by_label('Answer').fill('Ada')
    await name.get_by_role('button', name='Answer').click()
    await expect(notice(page)).to_have_text('Answered: ask_name. 2 tasks wait for you.')
    pizza = form(page, 'Question: order')
    await pizza.get_by_role('button', name='Answer').click()
    await expect(pizza.get_by_label('Kind')).to_have_accessible_description('is required')
    await pizza.get_by_label('Necessary change').fill('Offer pasta.')
    await pizza.get_by_role('button', name='Ask again').click()
    await form(page, 'Sign-in: newest_mail').get_by_role('button', name='I have signed in').click()
    await expect(page).to_have_title(re.compile('^(\\(1\\) )?keeper'))
    await page.get_by_role('navigation', name='Earlier').get_by_role('link', name='Tidy up.').click()
    await expect(page.get_by_text("Results: ['older.txt is deleted (force=False)']")).to_have_count(1)
    await expect(inbox(page)).to_have_count(0)


async def test_question_of_agent_is_answered_with_text(open_playground: Visit) -> None:
    script = {'Hello.': [tool_call('final_result', '{"question": "Which **city**?"}')], 'Paris': ['Paris it is.']}
    page = await open_playground(to_a2a(scripted(script, output_type=[str, InputRequired])))
    await send_message(page, 'Hello.')
    await open_inbox(page)
    await expect(form(page, 'Question').get_by_text('city')).to_have_css('font-weight', '700')
    await form(page, 'Question').get_by_label('Answer').fill('Paris')
    await form(page, 'Question').get_by_role('button', name='Answer').click()
    await expect(notice(page)).to_have_text('Answered. Nothing waits for you.')
    await open_inbox(page)
    await expect(page.get_by_text('Paris it is.')).to_have_count(1)


async def test_text_in_inbox_answers_no_later_question(visit_url: Visit) -> None:
    with serve(to_a2a(clerk_agent())) as server:
        task_id = await ask(server.url, 'Hello.')
        page = await visit_url(f'{server.url}docs', failures=1)
        await let_look_once(page)
        await page.goto(f'{server.url}docs?inbox')
        await form(page, 'Question').get_by_label('Answer').fill('Paris')
        async with client_of(server.url, None) as client:
            await client.send('Rome', task_id=task_id)
        await form(page, 'Question').get_by_role('button', name='Answer').click()
        await expect(notice(page)).to_contain_text('Somebody else was first: the task is input required')
        await expect(form(page, 'Question').get_by_text('Which account shall I delete?')).to_have_count(1)


@each_case('place', ['/docs', '/try/it', '/docs/'])
async def test_link_opens_its_decision_after_sign_in(visit_url: Visit, place: str) -> None:
    with serve(guarded_app(docs_url=place)) as server:
        _, task_id = [await ask(server.url, 'Tidy up.', ANN) for _ in range(2)]
        page = await visit_url(f'{server.url}{place[1:]}?task={task_id}')
        await expect(page.get_by_text('The server wants credentials.')).to_have_count(1)
        await sign_in(page, BOSS)
        await expect(form(page)).to_have_count(2)
        await expect(form(page).first).to_have_count(1)
        await expect(inbox(page).get_by_text('Asked by ann')).to_have_count(2)
        await expect(inbox(page).get_by_role('link', name='Conversation')).to_have_count(0)
        await expect(form(page).first.get_by_role('cell')).to_have_text(['old.txt', 'false'])
        assert await state_of_task(server.url, task_id) == 'input-required'
        await form(page).first.get_by_label('Reason').fill('It is needed.')
        await form(page).first.get_by_role('button', name='Deny').click()
        await expect(notice(page)).to_have_text('Denied: delete_file. A task waits for you.')
        assert await state_of_task(server.url, task_id) != 'input-required'


async def test_links_work_in_mounts_and_tenants(visit_url: Visit) -> None:
    parent = FastAPI()
    mount(parent, '/files', to_a2a(file_keeper(), access=Access(tenants=['acme'])))
    with serve(parent) as server:
        for place, base in (('files/docs', 'files'), ('files/acme/docs', 'files/acme')):
            task_id = await ask(f'{server.url}{base}', 'Tidy up.')
            page = await visit_url(f'{server.url}{place}?task={task_id}')
            await expect(form(page)).to_be_focused()
            await expect(page).to_have_title('(1) keeper · Playground')


async def test_foreign_task_is_shown_like_missing_task(visit_url: Visit) -> None:
    with serve(guarded_app()) as server:
        task_id = await ask(server.url, 'Tidy up.', ANN)
        shown: list[str] = []
        for linked in (task_id, 'unknown', '..', '%2e%2e%2Ftasks', 'a:cancel'):
            page = await visit_url(f'{server.url}docs?task={linked}', failures=None)
            await sign_in(page, EVE)
            await expect(notice(page)).to_have_text('Nothing waits for you.')
            shown.append(await inbox(page).inner_text())
        assert set(shown) == {
            'The task of this link does not exist, or you may not see it.\n\nNothing waits for you.'
        }, shown


async def test_link_to_decided_task_says_its_state(visit_url: Visit) -> None:
    with serve(guarded_app()) as server:
        task_id = await ask(server.url, 'Where?', ANN)
        page = await visit_url(f'{server.url}docs?task={task_id}')
        await sign_in(page, ANN)
        text = 'Nothing of the task of this link waits for you. The task is completed.'
        await expect(inbox(page).get_by_text(text)).to_have_count(1)


async def test_decided_call_disables_approve_all(visit_url: Visit) -> None:
    with serve(to_a2a(file_keeper())) as server:
        await ask(server.url, 'Tidy all.')
        page = await visit_url(f'{server.url}docs?inbox')
        both = inbox(page).get_by_role('group', name='2 calls').and_(page.locator('div:not([inert])'))
        await expect(both).to_have_count(1)
        await form(page).first.get_by_role('button', name='Deny').click()
        await expect(notice(page)).to_have_text('Denied: delete_file. A task waits for you.')
        await expect(both).to_have_count(0)


async def test_decision_of_second_browser_ends_form(visit_url: Visit) -> None:
    with serve(guarded_app()) as server:
        for text in ('Tidy up.', 'Tidy all.'):
            await ask(server.url, text, ANN)
        first = await inbox_of(visit_url, server.url, BOSS)
        second = await inbox_of(visit_url, server.url, CHIEF, failures=1)
        for page in (first, second):
            await expect(form(page)).to_have_count(3)
        await form(first).first.get_by_role('button', name='Approve').click()
        await expect(notice(first)).to_have_text('Approved: delete_file. A task waits for you.')
        # The second browser decides before it has looked again.
        await form(second).first.get_by_role('button', name='Deny').click()
        await expect(notice(second)).to_contain_text('Somebody else was first: the task is')
        await expect(form(second)).to_have_count(2)
        # One of two calls: the other one still waits, and keeps what stands in its form.
        await form(second).last.get_by_label('Reason').fill('It is needed.')
        await form(first).first.get_by_role('button', name='Approve').click()
        await expect(form(second)).to_have_count(1)
        await expect(notice(second)).to_contain_text('Somebody else was first: the task is input required')
        await expect(form(second).get_by_label('Reason')).to_be_focused()
        await form(second).get_by_role('button', name='Deny').click()
        await expect(notice(second)).to_have_text('Denied: delete_file. Nothing waits for you.')
        await expect(notice(first)).to_contain_text('Nothing waits for you.')


async def test_keys_decide_no_task_after_foreign_decision(visit_url: Visit) -> None:
    with serve(guarded_app()) as server:
        for _ in range(2):
            await ask(server.url, 'Tidy up.', ANN)
        first, second = [await inbox_of(visit_url, server.url, token) for token in (BOSS, CHIEF)]
        for page in (first, second):
            await expect(form(page)).to_have_count(2)
        await form(second).first.get_by_label('Reason').fill('It is')
        await form(first).first.get_by_role('button', name='Approve').click()
        await expect(notice(second)).to_contain_text('Somebody else was first')
        await expect(form(second)).to_be_focused()
        await second.keyboard.type(' needed.')
        await second.keyboard.press('Enter')
        await form(second).get_by_role('button', name='Approve').click()
        await expect(notice(second)).to_have_text('Approved: delete_file. Nothing waits for you.')


async def let_look_once(page: Page) -> None:
    """Leave the page. The next one may look for waiting tasks, and gets no answer to further looks."""
    await page.goto('about:blank')
    looks: set[str] = set()

    async def answer_once(route: Route) -> None:
        if route.request.url not in looks:
            looks.add(route.request.url)
            await route.continue_()

    await page.route(LISTS, answer_once)


async def test_unconfirmed_decision_names_no_other_caller(visit_url: Visit) -> None:
    with serve(to_a2a(file_keeper())) as server:
        await ask(server.url, 'Tidy up.')
        page = await visit_url(f'{server.url}docs')
        await page.route('**/agent-card.json', leave_out_replay)
        await page.route('**/message:send', lose_answer, times=1)
        await page.goto(f'{server.url}docs?inbox')
        await form(page).get_by_role('button', name='Approve').click()
        await expect(notice(page)).to_contain_text('You or somebody else has decided: the task is completed')


async def test_repeated_decision_is_same_message(visit_url: Visit) -> None:
    with serve(to_a2a(file_keeper())) as server:
        await ask(server.url, 'Tidy up.')
        page = await visit_url(f'{server.url}docs')
        await page.route('**/agent-card.json', leave_out_replay)
        await page.route('**/message:send', lose_answer, times=1)
        await let_look_once(page)
        await page.goto(f'{server.url}docs?inbox')
        await form(page).get_by_role('button', name='Approve').click()
        await expect(form(page).get_by_role('alert')).not_to_be_empty()
        await form(page).get_by_role('button', name='Approve').click()
        await expect(notice(page)).to_contain_text('Approved: delete_file.')


async def test_inbox_continues_after_server_restart(visit_url: Visit, tmp_path: Path) -> None:
    def app() -> Any:
        return guarded_app(backend=f'sqlite:///{tmp_path}/a2a.db', workers=Workers(drain_grace=0.1))

    with reserved_port() as reserved:
        port = port_of(reserved)
        with serve(app(), port=port) as server:
            task_id = await ask(server.url, 'Tidy up.', ANN)
            page = await inbox_of(visit_url, server.url, BOSS, failures=None)
            await expect(form(page)).to_have_count(1)
        await form(page).get_by_label('Reason').fill('It is needed.')
        await expect(notice(page)).to_have_text('The server cannot be reached. The inbox asks again by itself.')
        with serve(app(), port=port) as server:
            await expect(notice(page)).to_have_text('A task waits for you.')
            await ask(server.url, 'Tidy up.', ANN)
            await expect(form(page)).to_have_count(2)
            await expect(form(page).first.get_by_label('Reason')).to_have_value('It is needed.')
            await form(page).first.get_by_role('button', name='Deny').click()
            await expect(notice(page)).to_have_text('Denied: delete_file. A task waits for you.')
            assert await state_of_task(server.url, task_id) != 'input-required'


async def test_inbox_continues_after_store_outage(visit_url: Visit) -> None:
    with postgres_server() as store:
        backend = Postgres(store.url(), acquire_timeout=2)
        with serve(guarded_app(backend=backend)) as server:
            task_id = await ask(server.url, 'Tidy up.', ANN)
            page = await inbox_of(visit_url, server.url, BOSS, failures=None)
            await form(page).get_by_label('Reason').fill('It is needed.')
            await asyncio.to_thread(store.stop)
            await expect(notice(page)).to_contain_text('The inbox asks again by itself.')
            async with page.expect_response(lambda response: response.url.endswith(':send')) as answer:
                await form(page).get_by_role('button', name='Deny').click()
            assert (await answer.value).status == 503
            await asyncio.to_thread(store.start)
            await expect(notice(page)).to_have_text('Denied: delete_file. Nothing waits for you.')
            assert await state_of_task(server.url, task_id) != 'input-required'


async def test_inbox_reports_task_forgotten_by_restarted_server(visit_url: Visit) -> None:
    with reserved_port() as reserved:
        port = port_of(reserved)
        with serve(guarded_app(), port=port) as server:
            await ask(server.url, 'Tidy up.', ANN)
            page = await inbox_of(visit_url, server.url, BOSS, failures=None)
            await expect(form(page)).to_have_count(1)
        with serve(guarded_app(), port=port):
            await expect(notice(page)).to_have_text('This task is gone: delete_file. Nothing waits for you.')
            await expect(form(page)).to_have_count(0)


async def test_keyboard_alone_decides_task_after_task(visit_url: Visit) -> None:
    with serve(app := guarded_app()) as server:
        for _ in range(3):
            await ask(server.url, 'Tidy up.', ANN)
        page = await visit_url(f'{server.url}docs')
        field = page.get_by_role('form', name='Credentials').get_by_label('Bearer token')
        await press_tab_until_focused(page, field)
        await page.keyboard.type(BOSS)
        await page.keyboard.press('Enter')
        await expect(page).to_have_title('(3) keeper · Playground')
        await press_tab_until_focused(page, page.get_by_role('button', name='Inbox'))
        await page.keyboard.press('Enter')
        await expect(form(page).first).to_be_focused()
        await page.keyboard.press('Enter')  # a form is no button
        await press_tab_until_focused(page, form(page).first.get_by_role('button', name='Approve'))
        for _ in range(3):
            await page.keyboard.down('Enter')
        await page.keyboard.up('Enter')
        await expect(notice(page)).to_have_text('Approved: delete_file. 2 tasks wait for you.')
        await expect(form(page).first).to_be_focused()
        await expect(form(page)).to_have_count(2)
        await press_tab_until_focused(page, form(page).first.get_by_label('Reason'))
        await page.keyboard.type('It is needed.')
        await page.keyboard.press('Enter')
        await expect(notice(page)).to_have_text('Denied: delete_file. A task waits for you.')
        await expect(form(page)).to_be_focused()
        states = [task['status']['state'] for task in await app.list_tasks()]
        assert states.count('input-required') == 1


async def test_double_click_decides_single_task(visit_url: Visit) -> None:
    with serve(to_a2a(file_keeper())) as server:
        for _ in range(2):
            await ask(server.url, 'Tidy up.')
        page = await visit_url(f'{server.url}docs?inbox')
        await expect(form(page)).to_have_count(2)
        before = await page.evaluate(SCROLL_POSITION)
        box = await form(page).last.bounding_box()
        await form(page).first.get_by_role('button', name='Approve').dblclick()
        await expect(notice(page)).to_have_text('Approved: delete_file. A task waits for you.')
        assert (await page.evaluate(SCROLL_POSITION), await form(page).bounding_box()) == (before, box)


async def test_new_task_does_not_move_open_form(visit_url: Visit) -> None:
    with serve(to_a2a(file_keeper())) as server:
        await ask(server.url, 'Tidy up.')
        page = await visit_url(f'{server.url}docs?inbox', viewport={'width': 390, 'height': 780})
        await form(page).get_by_label('path').fill('new')
        box = await form(page).bounding_box()
        await ask(server.url, 'Tidy all.')
        await expect(form(page)).to_have_count(3)
        assert await form(page).first.bounding_box() == box
        await page.keyboard.type('er.txt')
        await expect(form(page).first.get_by_label('path')).to_have_value('newer.txt')
        assert await page.evaluate('document.documentElement.scrollWidth') == 390
        widths = 'const list = document.getElementById("waiting"); [list.scrollWidth, list.clientWidth]'
        scrolled, shown = await page.evaluate(widths)
        assert scrolled == shown


async def test_title_counts_more_than_20_waiting_tasks(visit_url: Visit) -> None:
    with serve(to_a2a(file_keeper())) as server:
        for _ in range(22):
            await ask(server.url, 'Tidy up.')
        page = await visit_url(f'{server.url}docs')
        await expect(page).to_have_title('(20+) keeper · Playground')
        await open_inbox(page)
        await expect(form(page)).to_have_count(20)
        await expect(notice(page)).to_have_text('More than 20 tasks wait for you.')
        waiting = form(page).get_by_role('button', name='Approve')
        for text in ('More than 20 tasks wait for you.', '20 tasks wait for you.'):
            await waiting.first.click()
            await expect(notice(page)).to_have_text(f'Approved: delete_file. {text}')
            await expect(form(page)).to_have_count(20)
        await expect(page).to_have_title('(20) keeper · Playground')


async def test_hidden_inbox_keeps_forms_of_later_pages(visit_url: Visit) -> None:
    with serve(to_a2a(file_keeper())) as server:
        for _ in range(20):
            await ask(server.url, 'Tidy up.')
        page = await inbox_with_set_clock(visit_url, server.url)
        await expect(notice(page)).to_have_text('20 tasks wait for you.')
        await form(page).first.get_by_label('Reason').fill('It is needed.')
        await open_inbox(page)
        await expect(page).to_have_title('(20) keeper · Playground')
        await ask(server.url, 'Tidy up.')
        await page.clock.fast_forward(600_000)
        await expect(page).to_have_title('(20+) keeper · Playground')
        await open_inbox(page)
        await expect(form(page).first.get_by_label('Reason')).to_have_value('It is needed.')


async def test_hidden_tab_sends_no_inbox_request(visit_url: Visit) -> None:
    with serve(to_a2a(file_keeper())) as server:
        page = await inbox_with_set_clock(visit_url, server.url)
        await expect(notice(page)).to_have_text('Nothing waits for you.')
        await page.evaluate(HIDE_TAB, True)
        looks = requests_for_lists(page)
        await ask(server.url, 'Tidy up.')
        await page.clock.fast_forward(86_400_000)
        assert looks == []
        await page.evaluate(HIDE_TAB, False)
        await expect(form(page)).to_have_count(1)


async def test_inbox_waits_for_retry_after(visit_url: Visit) -> None:
    async def busy(route: Route) -> None:
        body = {'error': {'message': 'The store is unavailable.'}}
        await route.fulfill(status=503, headers={'Retry-After': '3600'}, json=body)

    with serve(to_a2a(file_keeper())) as server:
        await ask(server.url, 'Tidy up.')
        page = await inbox_with_set_clock(visit_url, server.url, failures=1)
        await expect(notice(page)).to_have_text('A task waits for you.')
        await page.route(LISTS, busy, times=1)
        await page.clock.fast_forward(30_000)
        await expect(notice(page)).to_have_text('The store is unavailable. The inbox asks again by itself.')
        looks = requests_for_lists(page)
        await page.clock.fast_forward(3_000_000)
        for _ in range(2):
            await open_inbox(page)
        assert looks == []
        await page.clock.fast_forward(600_000)
        await expect(notice(page)).to_have_text('A task waits for you.')


async def list_nothing(route: Route) -> None:
    await route.fulfill(json={'tasks': [], 'nextPageToken': '', 'pageSize': 20, 'totalSize': 0})


async def test_slow_get_task_lengthens_polling_pause(visit_url: Visit) -> None:
    async def take_ten_seconds(route: Route) -> None:
        await page.clock.fast_forward(10_000)
        await route.fulfill(status=404, json={'error': {'message': 'Task not found.'}})

    with serve(to_a2a(file_keeper())) as server:
        task_id = await ask(server.url, 'Tidy up.')
        page = await inbox_with_set_clock(visit_url, server.url, failures=1)
        await expect(notice(page)).to_have_text('A task waits for you.')
        await page.route(LISTS, list_nothing)
        await page.route(f'**/tasks/{task_id}', take_ten_seconds)
        await page.clock.fast_forward(30_000)
        await expect(notice(page)).to_have_text('This task is gone: delete_file. Nothing waits for you.')
        looks = requests_for_lists(page)
        await page.clock.fast_forward(90_000)
        assert looks == []
        async with page.expect_response(LISTS):
            await page.clock.fast_forward(20_000)


async def test_inbox_looks_again_soon_after_sleep_of_machine(visit_url: Visit) -> None:
    async def sleep_for_night(route: Route) -> None:
        await page.clock.fast_forward(28_800_000)
        await route.fallback()

    with serve(to_a2a(file_keeper())) as server:
        page = await inbox_with_set_clock(visit_url, server.url)
        await expect(notice(page)).to_have_text('Nothing waits for you.')
        await ask(server.url, 'Tidy up.')
        await page.route(LISTS, sleep_for_night, times=1)
        await page.clock.fast_forward(30_000)
        await expect(notice(page)).to_have_text('A task waits for you.')
        await ask(server.url, 'Tidy up.')
        await page.clock.fast_forward(120_000)
        await expect(notice(page)).to_have_text('2 tasks wait for you.')


async def test_inbox_waits_for_retry_after_of_get_task(visit_url: Visit) -> None:
    async def busy(route: Route) -> None:
        body = {'error': {'message': 'The caller has used up a quota.'}}
        await route.fulfill(status=429, headers={'Retry-After': '3600'}, json=body)

    with serve(to_a2a(file_keeper())) as server:
        task_id = await ask(server.url, 'Tidy up.')
        page = await inbox_with_set_clock(visit_url, server.url, failures=1)
        await expect(notice(page)).to_have_text('A task waits for you.')
        await page.route(LISTS, list_nothing)
        await page.route(f'**/tasks/{task_id}', busy, times=1)
        await page.clock.fast_forward(30_000)
        await expect(notice(page)).to_have_text('The caller has used up a quota. The inbox asks again by itself.')
        requests: list[str] = []
        page.on('request', lambda request: requests.append(request.url))
        await page.clock.fast_forward(3_000_000)
        assert requests == []
        await page.clock.fast_forward(600_000)
        await expect(notice(page)).to_have_text('A task waits for you.')


async def test_typed_text_survives_expired_credentials(visit_url: Visit) -> None:
    async def refuse(route: Route) -> None:
        await route.fulfill(status=401, json={'error': {'message': 'The token has expired.'}})

    with serve(guarded_app()) as server:
        await ask(server.url, 'Tidy up.', ANN)
        viewport = {'width': 390, 'height': 780}
        page = await inbox_with_set_clock(visit_url, server.url, failures=1, viewport=viewport)
        await sign_in(page, BOSS)
        await expect(notice(page)).to_have_text('A task waits for you.')
        await form(page).get_by_label('Reason').fill('It is')
        await page.route(LISTS, refuse)
        await page.clock.fast_forward(600_000)
        await expect(notice(page)).to_have_text('The server wants credentials.')
        await page.keyboard.type(' needed.')
        await expect(form(page).get_by_label('Reason')).to_have_value('It is needed.')


async def test_html_from_proxy_is_not_read_as_list(visit_url: Visit) -> None:
    async def greet(route: Route) -> None:
        await route.fulfill(body='<h1>Welcome</h1>')

    with serve(to_a2a(file_keeper())) as server:
        await ask(server.url, 'Tidy up.')
        page = await visit_url(f'{server.url}docs')
        await page.route(LISTS, greet, times=1)
        await page.goto(f'{server.url}docs?inbox')
        await expect(form(page)).to_have_count(1)


async def test_inbox_shows_arguments_exactly(visit_url: Visit) -> None:
    args = r'{"id": 738529527931269425, "ratio": 1.0, "hidden": "a\u202eb", "no": null}'
    auth, approvals = BearerAuth({ANN: 'ann', **MANAGERS}), Approvals(approvers='files:approve')
    with serve(to_a2a(agent_with_approval(args), auth=auth, approvals=approvals)) as server:
        await ask(server.url, 'Keep.', ANN)
        page = await inbox_of(visit_url, server.url, BOSS)
        cells = form(page, 'Approval: keep').get_by_role('cell')
        await expect(cells).to_have_text(['738529527931269425', '1.0', r'"a\u202eb"', 'null'])


async def test_question_differing_from_arguments_is_shown(visit_url: Visit) -> None:
    async def change(route: Route) -> None:
        answer = await route.fetch(timeout=LIMIT * 1000)
        text = (await answer.text()).replace(r'{\"path\":\"old.txt\"', r'{\"path\":\"other.txt\"')
        await route.fulfill(response=answer, body=text)

    with serve(to_a2a(file_keeper())) as server:
        await ask(server.url, 'Tidy up.')
        page = await visit_url(f'{server.url}docs')
        await page.goto('about:blank')  # The look of this page is not changed.
        await page.route(LISTS, change, times=1)
        await page.goto(f'{server.url}docs?inbox')
        await expect(form(page).get_by_text('May I call delete_file {"path":"other.txt"')).to_have_count(1)


async def test_decision_with_lost_response_is_sent_again(visit_url: Visit) -> None:
    with serve(guarded_app()) as server:
        await ask(server.url, 'Tidy up.', ANN)
        page = await inbox_of(visit_url, server.url, BOSS)
        await page.route('**/message:send', lose_answer, times=1)
        await form(page).get_by_role('button', name='Approve').click()
        await expect(notice(page)).to_have_text('Approved: delete_file. Nothing waits for you.')


async def test_decision_is_shown_before_run_ends(visit_url: Visit) -> None:
    released = Event()

    def work() -> str:
        return str(released.wait(LIMIT))

    app = to_a2a(scripted({'Work.': [tool_call('work')]}, tools=[Tool(work, requires_approval=True)]))
    with serve(app) as server:
        await ask(server.url, 'Work.')
        page = await visit_url(f'{server.url}docs?inbox')
        try:
            await form(page, 'Approval: work').get_by_role('button', name='Approve').click()
            await expect(notice(page)).to_have_text('Approved: work. Nothing waits for you.')
        finally:
            released.set()


async def test_inbox_refresh_keeps_decision_in_flight(visit_url: Visit) -> None:
    decided, released = asyncio.Event(), asyncio.Event()

    async def hold(route: Route) -> None:
        answer = await route.fetch(timeout=LIMIT * 1000)
        decided.set()
        await released.wait()
        await route.fulfill(response=answer)

    with serve(guarded_app()) as server:
        await ask(server.url, 'Tidy up.', ANN)
        page = await inbox_of(visit_url, server.url, BOSS)
        await page.route('**/message:send', hold)
        await form(page).get_by_role('button', name='Approve').click()
        await asyncio.wait_for(decided.wait(), LIMIT)
        for _ in range(2):  # The second look begins after the end of the first.
            await look_again(page)
        released.set()
        await expect(notice(page)).to_have_text('Approved: delete_file. Nothing waits for you.')


async def test_empty_page_of_list_is_continued(visit_url: Visit) -> None:
    async def empty(route: Route) -> None:
        await route.fulfill(json={'tasks': [], 'nextPageToken': 'next', 'pageSize': 20, 'totalSize': 1})

    async def go_on(route: Route) -> None:
        await route.continue_(url=route.request.url.replace('&pageToken=next', ''))

    with serve(to_a2a(file_keeper())) as server:
        await ask(server.url, 'Tidy up.')
        page = await visit_url(f'{server.url}docs')
        await page.route(LISTS, empty, times=1)
        await page.route(re.compile('pageToken=next'), go_on)
        await page.goto(f'{server.url}docs?inbox')
        await expect(form(page)).to_have_count(1)


async def test_inbox_recovers_from_refused_page_token(visit_url: Visit) -> None:
    async def empty(route: Route) -> None:
        await route.fulfill(json={'tasks': [], 'nextPageToken': 'next', 'pageSize': 20, 'totalSize': 1})

    async def refuse(route: Route) -> None:
        await route.fulfill(status=400, json={'error': {'message': 'The token belongs to another list.'}})

    with serve(to_a2a(file_keeper())) as server:
        await ask(server.url, 'Tidy up.')
        page = await visit_url(f'{server.url}docs', failures=1)
        await page.goto('about:blank')  # The look of this page is not answered so.
        await page.route(LISTS, empty, times=1)
        await page.route(re.compile('pageToken=next'), refuse)
        await page.goto(f'{server.url}docs?inbox')
        await expect(notice(page)).to_have_text('Nothing waits for you.')
        await open_inbox(page)
        await open_inbox(page)
        await expect(form(page)).to_have_count(1)


async def test_inbox_is_hidden_if_lists_are_refused(open_playground: Visit) -> None:
    page = await open_playground(to_a2a(file_keeper(), access=Access(anonymous_list=False)), failures=1)
    await send_message(page, 'Tidy up.')
    await expect(page.get_by_role('form', name='Approval: delete_file')).to_have_count(1)
    await expect(page.get_by_role('button', name='Inbox')).to_have_count(0)
    assert await page.title() == 'keeper · Playground'


async def test_link_on_public_host_opens_task(visit_url: Visit) -> None:
    with serve(to_a2a(file_keeper()), allowed_hosts=['agent.test'], anonymous=True) as server:
        task_id = await ask(server.url, 'Tidy up.')
        url = f'{server.url}docs'.replace('127.0.0.1', 'agent.test')
        page = await visit_url(f'{url}?task={task_id}')
        await expect(notice(page)).to_have_text('The server lists no tasks for callers from other machines.')
        await form(page).get_by_role('button', name='Approve').click()
        await expect(notice(page)).to_contain_text('Approved: delete_file.')
        page = await visit_url(url)
        await expect(page.get_by_text('This server does not authenticate callers.')).to_have_count(1)
        await expect(page.get_by_role('button', name='Inbox')).to_have_count(0)


async def test_approval_decided_by_approver_is_not_in_inbox(visit_url: Visit) -> None:
    async def mark(route: Route) -> None:
        answer = await route.fetch(timeout=LIMIT * 1000)
        page = await answer.json()
        for task in page['tasks']:
            for part in task['status']['message']['parts']:
                for call in part.get('data', {}).get('pending', ()):
                    call['decidedBy'] = 'approver'
        await route.fulfill(response=answer, json=page)

    with serve(guarded_app()) as server:
        await ask(server.url, 'Tidy up.', ANN)
        page = await visit_url(f'{server.url}docs?inbox')
        await page.route(LISTS, mark)
        await sign_in(page, ANN)
        await expect(notice(page)).to_have_text('Nothing waits for you.')


async def test_inbox_says_arguments_are_hidden(visit_url: Visit) -> None:
    approvals = Approvals(approvers='files:approve', hide_arguments=['delete_file'])
    with serve(guarded_app(approvals=approvals)) as server:
        await ask(server.url, 'Tidy up.', ANN)
        page = await inbox_of(visit_url, server.url, BOSS)
        said = 'The operator of the server, or a remote agent, hides the arguments.'
        await expect(form(page).get_by_text(said)).to_have_count(1)
        await expect(inbox(page).get_by_text('old.txt')).to_have_count(0)
        await expect(inbox(page).get_by_text('Asked by')).to_have_count(0)


async def test_approver_by_function_decides_on_the_page(visit_url: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    def may_decide(caller: Caller, task: WaitingTask) -> bool:
        return caller.id == 'boss' and task.owner.id == 'ann'

    monkeypatch.setattr(approver_lists, 'MOST_ASKED', 2)  # the first pages are empty
    with serve(guarded_app(approvals=Approvals(approvers=may_decide))) as server:
        task_id = await ask(server.url, 'Tidy all.', ANN)
        for _ in range(5):
            await ask(server.url, 'Tidy up.', EVE)
        boss, chief = [await inbox_of(visit_url, server.url, token) for token in (BOSS, CHIEF)]
        await expect(notice(boss)).to_have_text('A task waits for you.')
        await expect(notice(chief)).to_have_text('Nothing waits for you.')
        await expect(form(boss).first.get_by_role('cell')).to_have_text('old.txt')
        await form(boss).first.get_by_role('button', name='Approve').click()
        await expect(notice(boss)).to_have_text('Approved: delete_file. A task waits for you.')
        await form(boss).get_by_label('Reason').fill('It is needed.')
        await form(boss).get_by_role('button', name='Deny').click()
        await expect(notice(boss)).to_have_text('Denied: delete_file. Nothing waits for you.')
        assert await state_of_task(server.url, task_id) != 'input-required'


async def test_new_credentials_replace_inbox(visit_url: Visit) -> None:
    with serve(guarded_app()) as server:
        await ask(server.url, 'Tidy up.', ANN)
        await ask(server.url, 'Name it.', EVE)
        page = await visit_url(f'{server.url}docs?inbox')
        for token, name in ((BOSS, 'Approval: delete_file'), (EVE, 'Question: ask_name')):
            await sign_in(page, token)
            await expect(form(page, name)).to_have_count(1)
            await expect(inbox(page).get_by_role('form')).to_have_count(1)


async def test_list_for_earlier_credentials_is_dropped(visit_url: Visit) -> None:
    asked, released = asyncio.Event(), asyncio.Event()

    async def hold(route: Route) -> None:
        answer = await route.fetch(timeout=LIMIT * 1000)
        asked.set()
        await released.wait()
        await route.fulfill(response=answer)

    with serve(guarded_app()) as server:
        await ask(server.url, 'Tidy up.', ANN)
        await ask(server.url, 'Name it.', EVE)
        page = await visit_url(f'{server.url}docs?inbox')
        await page.route(LISTS, hold, times=1)
        await sign_in(page, BOSS)
        await asyncio.wait_for(asked.wait(), LIMIT)
        await sign_in(page, EVE)
        await expect(form(page, 'Question: ask_name')).to_have_count(1)
        async with page.expect_event('requestfinished', lambda request: LISTS.search(request.url) is not None):
            released.set()
        await look_again(page)
        await expect(inbox(page).get_by_role('form')).to_have_count(1)


async def test_decision_with_earlier_credentials_is_not_reported(visit_url: Visit) -> None:
    asked, released = asyncio.Event(), asyncio.Event()

    async def lose_late(route: Route) -> None:
        asked.set()
        await released.wait()
        await route.abort()

    with serve(guarded_app()) as server:
        await ask(server.url, 'Tidy up.', ANN)
        page = await visit_url(f'{server.url}docs?inbox')
        await sign_in(page, BOSS)
        await page.route('**/message:send', lose_late)
        await form(page).get_by_role('button', name='Approve').click()
        await asyncio.wait_for(asked.wait(), LIMIT)
        await sign_in(page, EVE)
        await expect(notice(page)).to_have_text('Nothing waits for you.')
        async with page.expect_event('requestfailed'):
            released.set()
        await look_again(page)
        await expect(notice(page)).to_have_text('Nothing waits for you.')


async def test_enter_in_reason_denies_the_call(open_playground: Visit) -> None:
    page = await open_playground(to_a2a(file_keeper()))
    await send_message(page, 'Tidy up.')
    reason = page.get_by_role('form', name='Approval: delete_file').get_by_label('Reason')
    await reason.fill('It is needed.')
    await reason.press('Enter')
    await expect(page.get_by_role('log').get_by_text('Denied delete_file: It is needed.')).to_have_count(1)


async def test_enter_in_input_method_sends_no_denial(open_playground: Visit) -> None:
    page = await open_playground(to_a2a(file_keeper()))
    await send_message(page, 'Tidy up.')
    reason = page.get_by_role('form', name='Approval: delete_file').get_by_label('Reason')
    await reason.fill('It is')
    await reason.dispatch_event('keydown', {'key': 'Enter', 'isComposing': True})
    await reason.fill('It is needed.')
    await reason.press('Enter')
    await expect(page.get_by_role('log').get_by_text('Denied delete_file: It is needed.')).to_have_count(1)


async def test_client_certificate_has_inbox(open_playground: Visit) -> None:
    def ann(request: Request) -> Caller:
        return Caller(id='ann')

    app = to_a2a(
        file_keeper(),
        auth=ann,
        security_schemes={'tls': {'mtls_security_scheme': {}}},
        security_requirements=[{'schemes': {'tls': []}}],
    )
    page = await open_playground(app)
    await expect(page.get_by_role('button', name='Inbox')).to_have_count(1)
