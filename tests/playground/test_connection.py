"""Cut streams, cancels, credentials, and the places where a page may be mounted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from threading import Event

import pytest
from fastapi import FastAPI
from playwright.async_api import Route, expect
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from pydantic_ai_a2a import (
    A2AApp,
    Access,
    APIKeyAuth,
    Authenticator,
    BearerAuth,
    Caller,
    Limits,
    Progress,
    Results,
    Retention,
    Workers,
    mount,
    serve,
    to_a2a,
)
from pydantic_ai_a2a.types import TaskQuery

from ..bounds import LIMIT
from ..reserved_ports import port_of, reserved_port
from .agents import file_keeper, scripted
from .conftest import Visit, leave_out_replay, lose_answer, send_message

TOKEN = 'a-long-secret-token-of-ada'


class BlockedModel:
    """A model that waits within an answer until the test opens the gate, perhaps in the loops of several servers."""

    def __init__(self) -> None:
        self.reached, self.opened = Event(), False
        self.waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self.agent: Agent[None, str] = Agent(FunctionModel(stream_function=self.stream), name='gate')

    async def stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        yield 'First half, '
        await self.wait()
        yield 'second half.'

    async def wait(self) -> None:
        self.reached.set()
        if not self.opened:
            event = asyncio.Event()
            self.waiting.append((asyncio.get_running_loop(), event))
            await event.wait()

    def open(self) -> None:
        self.opened = True
        for loop, event in self.waiting:
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)


class StreamCutter:
    """Middleware that cuts the stream of a message, and holds the next stream until the test releases the stream."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.sent: asyncio.Task[object] | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.released = asyncio.Event()
        self.resumed: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope['type'] == 'http' and scope['path'].endswith(':stream'):
            self.loop, self.sent = asyncio.get_running_loop(), asyncio.current_task()
        elif scope['type'] == 'http' and scope['path'].endswith(':subscribe'):
            self.resumed += [value.decode() for name, value in scope['headers'] if name == b'last-event-id']
            await self.released.wait()
        await self.app(scope, receive, send)

    def cut(self) -> None:
        assert self.loop is not None
        assert self.sent is not None
        self.loop.call_soon_threadsafe(self.sent.cancel)

    def release(self) -> None:
        assert self.loop is not None
        self.loop.call_soon_threadsafe(self.released.set)


async def test_message_sent_before_agent_card_waits_for_card(open_playground: Visit) -> None:
    asked, answered = asyncio.Event(), asyncio.Event()
    order: list[str] = []

    async def hold(route: Route) -> None:
        asked.set()
        await answered.wait()
        order.append('card')
        await route.continue_()

    page = await open_playground(to_a2a(file_keeper({'Early.': ['A word.']})))
    await page.route('**/agent-card.json', hold)
    await page.reload()
    page.on('request', lambda request: order.append('message') if request.url.endswith('message:stream') else None)
    await asyncio.wait_for(asked.wait(), LIMIT)
    await send_message(page, 'Early.')
    answered.set()
    await expect(page.get_by_role('log').get_by_text('A word.')).to_have_count(1)
    # The page before the reload may have asked for the card, too.
    assert order in (['card', 'message'], ['card', 'card', 'message'])


async def test_cut_stream_resumes_after_last_event(open_playground: Visit) -> None:
    gate = BlockedModel()
    cut = StreamCutter(to_a2a(gate.agent))
    page = await open_playground(cut)
    await send_message(page, 'Hello.')
    await expect(page.get_by_text('First half,')).to_have_count(1)
    cut.cut()
    await expect(page.get_by_text('Connection lost.')).to_have_count(1)
    gate.open()
    cut.release()
    await expect(page.get_by_text('First half, second half.')).to_have_count(1)
    await expect(page.get_by_role('navigation', name='Tasks')).to_contain_text('completed')
    assert cut.resumed == ['2']


async def test_connection_notice_disappears_after_reconnect(open_playground: Visit) -> None:
    gate = BlockedModel()
    cut = StreamCutter(to_a2a(gate.agent))
    page = await open_playground(cut)
    await send_message(page, 'Hello.')
    await expect(page.get_by_text('First half,')).to_have_count(1)
    cut.cut()
    await expect(page.get_by_text('Connection lost.')).to_have_count(1)
    cut.release()
    await expect(page.get_by_text('Connection lost.')).to_have_count(0)
    await expect(page.get_by_role('article', name='Task').get_by_text('Working')).to_have_count(1)
    gate.open()
    await expect(page.get_by_text('First half, second half.')).to_have_count(1)


async def test_task_forgotten_by_restarted_server_is_marked(visit_url: Visit) -> None:
    cut = StreamCutter(to_a2a(file_keeper(), results=Results(progress=Progress(tools=True))))
    with serve(cut) as server:
        page = await visit_url(f'{server.url}docs', failures=2)
        await send_message(page, 'Mail.')
        await expect(page.get_by_role('form', name='Sign-in: newest_mail')).to_have_count(1)
        cut.app = to_a2a(file_keeper())
        cut.cut()
        cut.release()
        task = page.get_by_role('article', name='Task')
        await expect(task.get_by_role('alert')).to_have_text('The server has restarted and forgot this task.')
        await expect(task.get_by_role('group').filter(has_text='newest_mail')).to_contain_text('stopped')
        await expect(task.get_by_role('button')).to_have_count(0)
        await expect(task).to_have_attribute('aria-busy', 'false')
        await expect(page.get_by_text('Connection lost.')).to_have_count(0)
        await expect(page.get_by_role('navigation', name='Tasks')).to_contain_text('forgotten')
        await page.reload()
        await expect(page.get_by_text('The server has no tasks of this conversation.')).to_have_count(1)


async def test_answer_to_task_forgotten_by_server_ends_task(visit_url: Visit) -> None:
    cut = StreamCutter(to_a2a(file_keeper()))
    with serve(cut) as server:
        page = await visit_url(f'{server.url}docs', failures=1)
        await send_message(page, 'Tidy up.')
        approve = page.get_by_role('button', name='Approve')
        await expect(approve).to_have_count(1)  # the task is one of the server that goes away
        cut.app = to_a2a(file_keeper())
        await approve.click()
        await expect(page.get_by_role('alert').filter(has_text='has restarted and forgot this task')).to_have_count(1)
        await expect(page.get_by_role('form', name='Approval')).to_have_count(0)


async def test_tool_finished_during_lost_connection_is_shown_done(open_playground: Visit) -> None:
    gate = BlockedModel()
    agent = Agent(TestModel(custom_output_text='It is done.'), name='worker')

    @agent.tool_plain
    async def work() -> str:
        await gate.wait()
        return 'done'

    app = to_a2a(agent, results=Results(progress=Progress(tools=True)))
    cut = StreamCutter(app)
    page = await open_playground(cut)
    await send_message(page, 'Hello.')
    step = page.get_by_role('log').get_by_role('group').filter(has_text='work')
    await expect(step).to_contain_text('runs')
    cut.cut()
    await expect(page.get_by_text('Connection lost.')).to_have_count(1)
    gate.open()
    [task] = await app.list_tasks()
    await asyncio.wait_for(app.backend.events.wait(task['id'], 0), LIMIT)
    await app.backend.housekeeping.sweep(Retention(events=timedelta(milliseconds=1)), at=app.backend.now() + 1_000)
    cut.release()
    await expect(page.get_by_text('It is done.')).to_have_count(1)
    await expect(step).to_contain_text('done')


async def test_message_resent_after_lost_answer_runs_once(open_playground: Visit) -> None:
    app = to_a2a(file_keeper())
    page = await open_playground(app)
    await page.route('**/message:stream', lose_answer, times=1)
    await send_message(page, 'Think.')
    await expect(page.get_by_text('It is sunny.')).to_have_count(1)
    assert len(await app.list_tasks()) == 1


async def test_message_without_replay_is_sent_once(open_playground: Visit) -> None:
    sent: list[str] = []

    async def lose(route: Route) -> None:
        sent.append(route.request.url)
        await route.abort()

    page = await open_playground(to_a2a(file_keeper()))
    await page.route('**/agent-card.json', leave_out_replay)
    await page.route('**/message:stream', lose)
    await page.reload()
    await send_message(page, 'Think.')
    complaint = page.get_by_role('form', name='Message').get_by_role('alert')
    await expect(complaint).to_have_text('The server cannot be reached.')
    assert len(sent) == 1


SENDS = """(() => {
    globalThis.sends = [];
    const send = globalThis.fetch;
    globalThis.fetch = (url, options) => {
        if (String(url).endsWith('message:stream')) globalThis.sends.push(Date.now());
        return send(url, options);
    };
})()"""


async def test_retry_after_delays_repeated_message(open_playground: Visit) -> None:
    async def busy(route: Route) -> None:
        await route.fulfill(status=503, headers={'Retry-After': '86400'}, json={})

    page = await open_playground(to_a2a(file_keeper()), failures=1)
    await page.clock.install()
    await page.reload()
    await page.evaluate(SENDS)
    await page.route('**/message:stream', busy, times=1)
    await send_message(page, 'Think.')
    await expect(page.get_by_text('Connection lost.')).to_have_count(1)
    for hours in (1, 24):
        await page.clock.fast_forward(hours * 3_600_000)
    await expect(page.get_by_text('It is sunny.')).to_have_count(1)
    first, second = await page.evaluate('sends')
    assert second - first >= 86_400_000


async def test_refused_message_keeps_newer_draft(open_playground: Visit) -> None:
    reached, released = asyncio.Event(), asyncio.Event()

    async def refuse(route: Route) -> None:
        reached.set()
        await released.wait()
        await route.fulfill(status=400, json={'error': {'message': 'Refused.'}})

    page = await open_playground(to_a2a(file_keeper()), failures=1)
    await page.route('**/message:stream', refuse)
    await send_message(page, 'First.')
    await asyncio.wait_for(reached.wait(), LIMIT)
    field = page.get_by_role('textbox', name='Message', exact=True)
    await field.fill('Second.')
    released.set()
    await expect(page.get_by_role('form', name='Message').get_by_role('alert')).to_have_text('Refused.')
    assert await field.input_value() == 'Second.'


async def test_erased_task_is_reported_as_not_found(open_playground: Visit) -> None:
    cut = StreamCutter(app := to_a2a(BlockedModel().agent))
    page = await open_playground(cut, failures=4)
    await send_message(page, 'Hello.')
    await expect(page.get_by_text('First half,')).to_have_count(1)
    cut.cut()
    await expect(page.get_by_text('Connection lost.')).to_have_count(1)
    [task] = await app.list_tasks()
    await app.cancel_task(task['id'])
    assert await app.erase_task(task['id'])
    cut.release()
    gone = page.get_by_role('alert').filter(has_text='Task not found.')
    await expect(gone).to_have_count(1)
    async with page.expect_console_message(lambda message: message.location['url'].endswith(task['id'])):
        await page.get_by_role('button', name='Try again').click()
    await expect(gone).to_have_count(1)


async def test_cookies_are_sent_only_if_agent_card_needs_cookie(visit_url: Visit) -> None:
    cookies: list[str] = []

    async def note(request: Request) -> Caller:
        cookies.extend(request.cookies)
        return Caller(id='ada')

    with serve(to_a2a(file_keeper(), auth=note)) as server:
        page = await visit_url(f'{server.url}docs')
        await page.context.add_cookies([{'name': 'key', 'value': TOKEN, 'url': server.url}])
        await send_message(page, 'Think.')
        await expect(page.get_by_text('It is sunny.')).to_have_count(1)
        assert cookies == []
    with serve(to_a2a(file_keeper(), auth=APIKeyAuth({TOKEN: 'ada'}, cookie='key'))) as server:
        page = await visit_url(f'{server.url}docs')
        await page.context.add_cookies([{'name': 'key', 'value': TOKEN, 'url': server.url}])
        await expect(page.get_by_text('The browser sends the cookie key of this site.')).to_have_count(1)
        await send_message(page, 'Think.')
        await expect(page.get_by_text('It is sunny.')).to_have_count(1)


async def test_conversation_continues_after_server_restart(visit_url: Visit, tmp_path: Path) -> None:
    gate = BlockedModel()
    agent = Agent(TestModel(custom_output_text='Both are done.'), name='worker')

    @agent.tool_plain
    async def work() -> str:
        await gate.wait()
        return 'done'

    def app() -> A2AApp:
        return to_a2a(agent, backend=f'sqlite:///{tmp_path}/a2a.db', workers=Workers(drain_grace=0.1))

    with reserved_port() as reserved:
        port = port_of(reserved)
        with serve(app(), port=port) as server:
            page = await visit_url(f'{server.url}docs', failures=None)
            await send_message(page, 'Hello.')
            assert await asyncio.to_thread(gate.reached.wait, LIMIT)
            await expect(page.get_by_role('button', name='Cancel task')).to_have_count(1)
        await expect(page.get_by_text('Connection lost.')).to_have_count(1)
        gate.open()
        with serve(app(), port=port):
            answer = page.get_by_text('Both are done.')
            await expect(answer).to_have_count(1)
            await expect(page.get_by_text('Connection lost.')).to_have_count(0)
            await page.reload()
            await expect(answer).to_have_count(1)
            await send_message(page, 'And now?')
            await expect(answer).to_have_count(2)


async def test_cancel_button_cancels_running_task(open_playground: Visit) -> None:
    gate = BlockedModel()
    app = to_a2a(gate.agent)
    page = await open_playground(app)
    await send_message(page, 'Hello.')
    await expect(page.get_by_text('First half,')).to_have_count(1)
    await page.get_by_role('button', name='Cancel task').click()
    await expect(page.get_by_role('article', name='Task').get_by_text('Canceled')).to_have_count(1)
    await expect(page.get_by_role('button', name='Cancel task')).to_have_count(0)
    await expect(page.get_by_text('First half,')).to_have_count(1)
    assert [task['status']['state'] for task in await app.list_tasks()] == ['canceled']


async def test_cancel_button_stops_waiting_task_and_tools(open_playground: Visit) -> None:
    page = await open_playground(to_a2a(file_keeper(), results=Results(progress=Progress(tools=True))))
    await send_message(page, 'Mail.')
    step = page.get_by_role('log').get_by_role('group').filter(has_text='newest_mail')
    await expect(step).to_contain_text('waits')
    await page.get_by_role('button', name='Cancel task').click()
    await expect(step).to_contain_text('stopped')
    await expect(page.get_by_role('form', name='Sign-in')).to_have_count(0)
    await expect(page.get_by_role('textbox', name='Message', exact=True)).to_be_focused()


@pytest.mark.parametrize(
    ('auth', 'label'),
    [
        (BearerAuth({TOKEN: 'ada'}), 'Bearer token'),
        (APIKeyAuth({TOKEN: 'ada'}), 'API key (X-API-Key)'),
        (APIKeyAuth({TOKEN: 'ada'}, query='key'), 'API key (key)'),
    ],
    ids=['bearer', 'header', 'query'],
)
async def test_credentials_are_requested_and_not_stored(visit_url: Visit, auth: Authenticator, label: str) -> None:
    app = to_a2a(file_keeper(), auth=auth)
    with serve(app) as server:
        page = await visit_url(f'{server.url}docs', failures=2)
        await send_message(page, 'Where?')
        await expect(page.get_by_text('The server wants credentials.')).to_have_count(1)
        field = page.get_by_role('form', name='Credentials').get_by_label(label)
        await expect(field).to_be_focused()
        await expect(page.get_by_role('textbox', name='Message', exact=True)).to_have_value('Where?')
        await field.fill(TOKEN)
        await page.keyboard.press('Enter')
        await page.get_by_role('textbox', name='Message', exact=True).press('Enter')
        await expect(page.get_by_text("Results: ['It is sunny in Paris.']")).to_have_count(1)
        assert await page.evaluate('[localStorage.length, sessionStorage.length, document.cookie]') == [0, 0, '']
        assert TOKEN not in page.url + await page.content()
        await page.reload()
        await expect(page.get_by_text('The server wants credentials.')).to_have_count(1)
        await field.fill(TOKEN)
        await page.keyboard.press('Enter')
        await expect(page.get_by_text("Results: ['It is sunny in Paris.']")).to_have_count(1)
        assert [task['context_id'] in page.url for task in await app.list_tasks()] == [True]


async def test_page_below_prefix_and_tenant_calls_own_agent(visit_url: Visit) -> None:
    app = to_a2a(file_keeper(), access=Access(tenants=['acme']))
    parent = FastAPI()
    mount(parent, '/agents/keeper', app)
    with serve(parent) as server:
        assert server.docs_url == f'{server.url}agents/keeper/docs'
        for path in ('agents/keeper/docs', 'agents/keeper/acme/docs'):
            page = await visit_url(f'{server.url}{path}')
            await send_message(page, 'Where?')
            await expect(page.get_by_text("Results: ['It is sunny in Paris.']")).to_have_count(1)
            await page.reload()
            await expect(page.get_by_text("Results: ['It is sunny in Paris.']")).to_have_count(1)
    owners = [task.header.owner for task in (await app.backend.reader.list(TaskQuery(owner=None))).tasks]
    assert len({*owners}) == 2


async def test_page_on_public_host_warns_of_anonymous_callers(visit_url: Visit) -> None:
    app = to_a2a(file_keeper(), access=Access(anonymous_list=False))
    with serve(app, allowed_hosts=['agent.test'], anonymous=True) as server:
        page = await visit_url(f'{server.url}docs', failures=2)
        await expect(page.get_by_text('does not authenticate callers')).to_have_count(0)
        await send_message(page, 'Where?')
        await expect(page.get_by_text("Results: ['It is sunny in Paris.']")).to_have_count(1)
        await page.reload()  # lists are refused, so the page reads the task by its id
        await expect(page.get_by_text("Results: ['It is sunny in Paris.']")).to_have_count(1)
        page = await visit_url(f'{server.url}docs'.replace('127.0.0.1', 'agent.test'))
        await expect(page.get_by_text('This server does not authenticate callers.')).to_have_count(1)


async def test_server_error_is_shown_and_message_is_kept(open_playground: Visit) -> None:
    page = await open_playground(to_a2a(scripted({}), limits=Limits(part=10)), failures=1)
    await send_message(page, 'Much too long.')
    await expect(page.get_by_role('alert').filter(has_text='message.parts[0].text')).to_have_count(1)
    await expect(page.get_by_role('textbox', name='Message', exact=True)).to_have_value('Much too long.')
    await expect(page.get_by_role('article', name='Task')).to_have_count(0)


async def test_failed_task_shows_error_with_correlation_id(open_playground: Visit) -> None:
    page = await open_playground(to_a2a(scripted({})))
    await send_message(page, 'Hello.')
    await expect(page.get_by_role('alert').filter(has_text='failed')).to_have_count(1)
    await expect(page.get_by_role('navigation', name='Tasks')).to_contain_text('failed')
    await expect(page.get_by_text('Correlation id: ')).to_have_count(1)
    await page.reload()
    await expect(page.get_by_role('alert').filter(has_text='failed')).to_have_count(1)
