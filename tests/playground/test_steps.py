"""Tool calls, results and thoughts in the playground: shown to a developer, and to nobody else."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.async_api import Locator, Page, Route, expect
from pydantic_ai import Agent, ModelRetry, RunContext, Tool
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.conversation_store import InMemoryConversationStore
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    PartEndEvent,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, FunctionModel
from pydantic_core import from_json
from starlette.applications import Starlette
from starlette.testclient import TestClient

from pydantic_ai_a2a import Access, Approvals, BearerAuth, InputRequired, Rejected, mount, serve, to_a2a
from pydantic_ai_a2a.server.agent.playground_steps import Trace
from pydantic_ai_a2a.server.app.a2a_app import A2AApp
from pydantic_ai_a2a.wire.extensions.remote_calls import SYSTEM

from ..agents import scripted_model
from ..app_client import message
from ..behaviour.pending_calls import answer_message, approve
from ..bounds import LIMIT
from ..cases import each_case
from ..e2e.server import process
from .agents import file_keeper, prompt, scripted, tool_call
from .conftest import Visit, send_message

APP_MODULE = """
import sys
from pydantic_ai import Agent
from pydantic_ai_a2a import run

agent = Agent('test')
if __name__ == '__main__':
    run(agent, port=0, allowed_hosts=sys.argv[1:], anonymous=True)
"""
LOCAL = {'Host': '127.0.0.1:8000', 'Origin': 'http://127.0.0.1:8000'}


def local_client(app: A2AApp) -> TestClient:
    """A client as the page of the same machine."""
    return TestClient(app, client=('127.0.0.1', 50_000), headers={**LOCAL, 'A2A-Version': '1.0'})


def task_of_message(client: TestClient, sent: Any, tenant: str = '') -> Any:
    return client.post(f'{tenant}/message:send', json={'message': sent}).json()['task']


def steps_of(client: TestClient, *task_ids: str, tenant: str = '') -> Any:
    """The steps of tasks. A server keeps the steps of the runs that follow the first request."""
    return client.post(f'{tenant}/docs/steps', params={'task': task_ids}).json()


def step_block(page: Page, text: str) -> Locator:
    return page.get_by_role('log').get_by_role('group').filter(has_text=text)


async def block_kinds(page: Page) -> list[str]:
    """The blocks of the conversation. An answer is a message after a reload, and an artifact before."""
    names: list[str] = await page.locator('.block').evaluate_all('(all) => all.map((one) => one.className)')
    return [name.removeprefix('block ').replace('artifact', 'agent') for name in names]


async def test_steps_are_shown_by_default_and_after_reload(open_playground: Visit) -> None:
    thinking = {0: DeltaThinkingPart(content='Paris is in France.')}
    page = await open_playground(to_a2a(file_keeper({'Plan.': [thinking, tool_call('look_up', '{"city": "Paris"}')]})))
    await send_message(page, 'Plan.')
    for _ in range(2):
        await expect(step_block(page, 'look_up')).to_contain_text('look_updone{"city":"Paris"} → It is sunny in Paris.')
        await expect(step_block(page, 'Thought')).to_contain_text('Paris is in France.')
        assert await block_kinds(page) == ['user', 'thought', 'tool', 'agent']
        await step_block(page, 'look_up').get_by_text('look_up').click()
        await expect(step_block(page, 'look_up').get_by_role('group', name='Result')).to_have_text(
            'It is sunny in Paris.'
        )
        await page.reload()
    await expect(step_block(page, 'look_up')).to_be_visible()  # The list of tasks has moved the switch by now.
    switch = page.get_by_role('switch', name='Show tool calls and thoughts')
    await expect(switch).to_be_checked()
    await expect(switch).to_have_accessible_description(
        re.compile(r'Results\(progress=Progress\(tools=True, thinking=True\)\)')
    )
    await switch.click()
    await expect(step_block(page, 'look_up')).to_be_hidden()
    await page.reload()
    await expect(page.get_by_text("Results: ['It is sunny in Paris.']")).to_have_count(1)
    await expect(step_block(page, 'look_up')).to_be_hidden()
    await switch.click()
    await expect(step_block(page, 'look_up')).to_be_visible()


async def test_steps_of_each_run_follow_their_message(open_playground: Visit) -> None:
    page = await open_playground(to_a2a(file_keeper()))
    await send_message(page, 'Tidy up.')
    await expect(step_block(page, 'delete_file')).to_contain_text('waits')
    await page.get_by_role('button', name='Approve').click()
    await expect(page.get_by_text("Results: ['old.txt is deleted (force=False)']")).to_have_count(1)
    for _ in range(2):
        await expect(step_block(page, 'delete_file')).to_contain_text('old.txt is deleted')
        assert await block_kinds(page) == ['user', 'agent', 'tool', 'asked', 'user', 'agent']
        await page.reload()


async def test_steps_survive_task_failure_and_server_restart(visit_url: Visit, tmp_path: Path) -> None:
    agent = scripted({'Work.': [tool_call('work')], 'Fail.': [tool_call('fail')]})

    @agent.tool_plain
    def work() -> dict[str, str]:
        return {'made': 'a bridge'}

    @agent.tool_plain
    def fail() -> str:
        raise RuntimeError('broken')

    assert {work, fail}

    def app() -> A2AApp:
        return to_a2a(agent, backend=f'sqlite:///{tmp_path}/a2a.db')

    with serve(app()) as server:
        page = await visit_url(f'{server.url}docs')
        await send_message(page, 'Work.')
        await expect(step_block(page, 'work')).to_contain_text('a bridge')
        await send_message(page, 'Fail.')
        await expect(step_block(page, 'fail')).to_contain_text('failedRuntimeError: broken')
        await page.reload()
        await expect(step_block(page, 'fail')).to_contain_text('failedRuntimeError: broken')
        place = page.url.partition('#')[2]
    with serve(app()) as server:
        page = await visit_url(f'{server.url}docs#{place}')
        await expect(step_block(page, 'work')).to_contain_text('a bridge')
        await step_block(page, 'work').get_by_text('work').click()
        await expect(step_block(page, 'work').get_by_role('cell')).to_have_text(['a bridge'])


async def test_parallel_tool_results_appear_as_each_finishes(open_playground: Visit) -> None:
    agent = scripted({'Work.': ['Let me look. ', tool_call('slow', n=1), tool_call('quick', n=2)]}, 'Ready.')
    done = Event()

    @agent.tool_plain
    def slow() -> str:
        assert done.wait(LIMIT)
        return 'It is late.'

    @agent.tool_plain
    def quick() -> str:
        return 'It is early.'

    assert {slow, quick}
    page = await open_playground(to_a2a(agent))
    await send_message(page, 'Work.')
    await expect(step_block(page, 'quick')).to_contain_text('doneIt is early.')
    await expect(step_block(page, 'slow')).to_contain_text('runs')
    assert await block_kinds(page) == ['user', 'agent', 'tool', 'tool']
    done.set()
    await expect(page.get_by_text('Ready.')).to_be_visible()
    await expect(step_block(page, 'slow')).to_contain_text('doneIt is late.')
    assert await block_kinds(page) == ['user', 'agent', 'tool', 'tool', 'agent']


async def test_thought_appears_while_model_still_writes(open_playground: Visit) -> None:
    done = Event()

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        yield {0: DeltaThinkingPart(content='Paris is in France.')}
        yield 'It is '
        assert await asyncio.to_thread(done.wait, LIMIT)
        yield 'sunny.'

    page = await open_playground(to_a2a(Agent(FunctionModel(stream_function=stream))))
    await send_message(page, 'Where?')
    await expect(step_block(page, 'Thought')).to_contain_text('Paris is in France.')
    await expect(page.get_by_text('It is')).to_be_visible()
    assert await block_kinds(page) == ['user', 'thought', 'agent']
    done.set()
    await expect(page.get_by_text('It is sunny.')).to_be_visible()
    assert await block_kinds(page) == ['user', 'thought', 'agent']


async def test_request_for_steps_waits_for_next_step() -> None:
    trace = Trace()
    trace.keep('task', 'run', [ModelRequest([UserPromptPart('Read.')])])
    waiting = asyncio.create_task(trace.changed(trace.version))
    await asyncio.sleep(0)
    assert not waiting.done()
    trace.observe('task', 'run', PartEndEvent(index=0, part=TextPart('I read.')))
    await asyncio.wait_for(waiting, LIMIT)
    await asyncio.wait_for(trace.changed(trace.version - 1), LIMIT)  # the step is there already
    steps = await trace.steps('task', 'context', InMemoryConversationStore())
    assert [step['kind'] for step in steps] == ['prompt', 'text']


SECRET = 'the password is swordfish'


def fail() -> str:
    raise RuntimeError(SECRET)


@pytest.mark.parametrize(
    ('model', 'error'),
    [
        (ToolCallPart('fail', {}, 'c1'), {'kind': 'return', 'id': 'c1', 'outcome': 'failed'}),
        (RuntimeError(SECRET), {'kind': 'error'}),
    ],
    ids=['tool', 'model'],
)
def test_exception_text_reaches_developer_only(model: Any, error: dict[str, str]) -> None:
    with local_client(to_a2a(Agent(scripted_model(model), tools=[fail]))) as client:
        steps_of(client)
        events = client.post('/message:stream', json={'message': message('Fail.')}).text
        task_id = from_json(events.partition('data: ')[2].partition('\n')[0])['task']['id']
        others = [
            client.post(f'/docs/steps?task={task_id}', headers=headers).text
            for headers in ({'Origin': 'https://evil.example'}, {'X-Forwarded-For': '203.0.113.7'})
        ]
        texts = [events, *others, client.get(f'/tasks/{task_id}').text]
        *_, step = steps_of(client, task_id)[task_id]
    assert 'TASK_STATE_FAILED' in events
    assert [SECRET in text for text in texts] == [False] * 4
    assert (step.pop('result', None) or step.pop('text')) == f'RuntimeError: {SECRET}'
    assert step == error


def test_error_of_exceeded_retries_is_shown_at_tool() -> None:
    def retry() -> str:
        raise ModelRetry('Again.')

    calls = [ToolCallPart('retry', {}, f'c{n}') for n in (1, 2)]
    with local_client(to_a2a(Agent(scripted_model(*calls), tools=[retry]))) as client:
        steps_of(client)
        task = task_of_message(client, message())
        steps = steps_of(client, task['id'])[task['id']]
    returns = [(step['id'], step['outcome']) for step in steps if step['kind'] == 'return']
    assert returns == [('c1', 'retried'), ('c2', 'failed')]
    assert 'exceeded' in steps[-1]['result']


class RenamedErrors(AbstractCapability[object]):
    """Raises other errors for those of tools."""

    async def wrap_node_run(self, ctx: RunContext[object], *, node: Any, handler: Any) -> Any:
        try:
            return await handler(node)
        except RuntimeError as error:
            raise ValueError('renamed') from error


def test_error_raised_by_capability_names_its_tool() -> None:
    agent = Agent(scripted_model(ToolCallPart('fail', {}, 'c1')), tools=[fail], capabilities=[RenamedErrors()])
    with TestClient(to_a2a(agent), client=('127.0.0.1', 50_000)) as client:
        client.post('/docs/steps', headers=LOCAL)
        sent = client.post('/message:send', json={'message': message()}, headers={'A2A-Version': '1.0'}).json()['task']
        steps = client.post(f'/docs/steps?task={sent["id"]}', headers=LOCAL).json()[sent['id']]
    assert (steps[-1]['id'], steps[-1]['result']) == ('c1', 'ValueError: renamed')


async def test_error_with_cyclic_cause_is_a_step() -> None:
    trace, error = Trace(), RuntimeError('broken')
    error.__cause__ = error
    trace.fail('task', 'run', error)
    steps = await trace.steps('task', 'context', InMemoryConversationStore())
    assert steps == [{'kind': 'error', 'text': 'RuntimeError: broken'}]


async def test_errors_of_hundred_newest_tasks_are_kept() -> None:
    trace = Trace()
    for n in range(101):  # as of runs that resume, and fail before a step
        trace.fail(f'task {n}', 'run', RuntimeError('broken'))
    kept = [await trace.steps(f'task {n}', 'context', InMemoryConversationStore()) for n in (0, 1, 100)]
    assert [len(steps) for steps in kept] == [0, 1, 1]


@each_case('model', [ToolCallPart('fail', {}, 'c1'), RuntimeError(SECRET)])
def test_hidden_arguments_hide_errors_in_steps(model: Any) -> None:
    app = to_a2a(Agent(scripted_model(model), tools=[fail]), approvals=Approvals(hide_arguments=['fail']))
    with local_client(app) as client:
        steps_of(client)
        task = task_of_message(client, message())
        steps = steps_of(client, task['id'])
    assert task['status']['state'] == 'TASK_STATE_FAILED'
    assert SECRET not in str(steps)


def test_waiting_call_has_no_error_in_steps() -> None:
    def pay() -> str:
        raise InputRequired('Which card?')

    app = to_a2a(Agent(scripted_model(ToolCallPart('pay', {}, 'c1')), tools=[pay]))
    with local_client(app) as client:
        steps_of(client)
        task = task_of_message(client, message())
        steps = steps_of(client, task['id'])[task['id']]
    assert task['status']['state'] == 'TASK_STATE_INPUT_REQUIRED'
    assert [step['kind'] for step in steps] == ['prompt', 'call']


def test_rejection_by_tool_has_no_error_in_steps() -> None:
    def pay() -> str:
        raise Rejected('No card.')

    app = to_a2a(Agent(scripted_model(ToolCallPart('pay', {}, 'c1')), tools=[pay]))
    with TestClient(app, client=('127.0.0.1', 50_000)) as client:
        client.post('/docs/steps', headers=LOCAL)
        sent = client.post('/message:send', json={'message': message()}, headers={'A2A-Version': '1.0'}).json()['task']
        steps = client.post(f'/docs/steps?task={sent["id"]}', headers=LOCAL).json()[sent['id']]
    assert sent['status']['state'] == 'TASK_STATE_REJECTED'
    assert [step['kind'] for step in steps] == ['prompt', 'call']


async def test_model_error_is_shown_at_failure_on_own_machine(open_playground: Visit) -> None:
    page = await open_playground(to_a2a(Agent(scripted_model(RuntimeError('no such model')))))
    await send_message(page, 'Fail.')
    await expect(page.locator('.failure pre')).to_have_text('RuntimeError: no such model')
    await expect(page.get_by_text('The log of the server has the reason. Correlation id: ')).to_be_visible()


async def test_hidden_arguments_are_hidden_in_steps(visit_url: Visit) -> None:
    broken = {'Wrong.': [tool_call('look_up', '{"town": "Secret"}')]}
    with serve(to_a2a(file_keeper(broken), approvals=Approvals(hide_arguments=['look_up']))) as server:
        page = await visit_url(f'{server.url}docs')
        await send_message(page, 'Where?')
        await expect(step_block(page, 'look_up')).to_contain_text(
            'look_updoneThe server hides the arguments.The server hides the result.'
        )
        await send_message(page, 'Wrong.')
        await expect(step_block(page, 'look_up').last).to_contain_text(
            'look_upretriedThe server hides the arguments.The server hides the result.'
        )


async def test_steps_hide_arguments_by_remote_tool_name() -> None:
    part = ToolCallPart('question', {'text': 'Pay 5 euros?'}, 'call', provider_name=SYSTEM)
    messages = [ModelResponse([part, replace(part, tool_call_id='hidden', provider_details={'tool': 'pay'})])]
    trace = Trace(['pay'])
    trace.keep('task', 'run', messages)
    shown, hidden = await trace.steps('task', 'context', InMemoryConversationStore())
    assert shown == {'kind': 'call', 'id': 'call', 'tool': 'question', 'args': {'text': 'Pay 5 euros?'}}
    assert hidden == {'kind': 'call', 'id': 'hidden', 'tool': 'question'}


async def test_failed_request_for_steps_is_repeated(open_playground: Visit) -> None:
    async def lose(route: Route) -> None:
        await route.abort()

    page = await open_playground(to_a2a(file_keeper()))
    await page.route(re.compile(r'/steps\?task='), lose, times=1)
    await send_message(page, 'Where?')
    await expect(step_block(page, 'look_up')).to_contain_text('It is sunny in Paris.')


async def test_button_stays_clickable_while_steps_arrive(open_playground: Visit) -> None:
    arrived = asyncio.Event()

    async def hold(route: Route) -> None:
        await arrived.wait()
        await route.continue_()

    page = await open_playground(to_a2a(file_keeper()))
    await page.route(re.compile(r'/steps\?task='), hold)
    await send_message(page, 'Tidy up.')
    await page.get_by_role('button', name='Approve').hover()
    await page.mouse.down()
    async with page.expect_response(re.compile(r'/steps\?task=')):
        arrived.set()
    await page.evaluate('new Promise((done) => setTimeout(done, 200))')  # longer than between two drawings
    await page.mouse.up()
    await expect(page.get_by_text("Results: ['old.txt is deleted (force=False)']")).to_have_count(1)
    await expect(step_block(page, 'delete_file')).to_contain_text('done')


NOTE_TIMES = """() => {
    const { fetch } = window;
    window.times = [];
    window.fetch = (url, ...rest) => {
        if (`${url}`.includes('/steps?task=')) window.times.push(performance.now());
        return fetch(url, ...rest);
    };
}"""
"""Keep the times of requests for steps, by the clock of the page: the test may hear of a request later."""


async def test_running_task_steps_are_polled_at_most_every_second(open_playground: Visit) -> None:
    agent, done = scripted({'Work.': [tool_call('work')]}), Event()

    @agent.tool_plain
    def work() -> str:
        assert done.wait(LIMIT)
        return 'It is done.'

    assert work
    page = await open_playground(to_a2a(agent))
    await send_message(page, 'Work.')
    await expect(step_block(page, 'work')).to_contain_text('runs')
    await page.evaluate(NOTE_TIMES)
    # The first request may be on its way already, and the second may still get the step that an event has shown.
    for _ in range(4):
        async with page.expect_response(re.compile(r'/steps\?task=')):
            pass
    *_, first, second = await page.evaluate('times')
    done.set()
    await expect(step_block(page, 'work')).to_contain_text('It is done.')
    assert second - first > 1000


async def test_page_on_public_host_shows_no_steps(visit_url: Visit) -> None:
    with serve(to_a2a(file_keeper()), allowed_hosts=['agent.test'], anonymous=True) as server:
        page = await visit_url(f'{server.url}docs'.replace('127.0.0.1', 'agent.test'))
        await send_message(page, 'Where?')
        await expect(page.get_by_text("Results: ['It is sunny in Paris.']")).to_have_count(1)
        await expect(page.locator('.block.tool')).to_have_count(0)
        await send_message(page, 'Unknown.')
        await expect(page.get_by_text('The log of the server has the reason. Correlation id: ')).to_be_visible()
        await expect(page.locator('.failure pre')).to_have_count(0)


@each_case(
    ('address', 'headers', 'steps'),
    [
        ('127.0.0.1', {}, {}),
        ('203.0.113.7', {}, None),
        ('127.0.0.1', {'Origin': 'https://evil.example'}, None),
        ('127.0.0.1', {'Origin': 'http://127.0.0.1:9000'}, None),
        ('127.0.0.1', {'Origin': 'null'}, None),
        ('127.0.0.1', {'X-Forwarded-For': '203.0.113.7'}, None),
        ('127.0.0.1', {'Origin': 'https://agent.example'}, None),  # through a proxy that adds no header
        ('127.0.0.1', {'Host': 'agent.example', 'Origin': 'http://agent.example'}, None),
    ],
)
def test_only_page_of_same_machine_gets_steps(
    address: str, headers: dict[str, str], steps: dict[str, object] | None
) -> None:
    app = to_a2a(Agent('test'), access=Access(cors=['*']))
    with TestClient(app, client=(address, 50_000)) as client:
        assert client.post('/docs/steps?task=1', headers={**LOCAL, **headers}).json() == steps


async def test_http_1_0_request_of_proxy_gets_no_steps() -> None:
    with serve(to_a2a(Agent('test'))) as server:
        host = urlsplit(server.url).netloc
        answers: list[bytes] = []
        for version in ('1.0', '1.1'):
            reader, writer = await asyncio.open_connection(*host.split(':'))
            lines = (f'POST /docs/steps HTTP/{version}', f'Host: {host}', f'Origin: http://{host}', 'Connection: close')
            writer.write('\r\n'.join((*lines, '', '')).encode())
            answers.append((await asyncio.wait_for(reader.read(), LIMIT)).partition(b'\r\n\r\n')[2])
            writer.close()
    assert answers == [b'null', b'{}']


def test_server_with_authentication_serves_no_steps() -> None:
    app = to_a2a(Agent('test'), auth=BearerAuth({'a-long-secret-token-of-ada': 'ada'}))
    with local_client(app) as client:
        assert client.post('/docs/steps').status_code == 404


@each_case(
    'settings',
    [
        {'access': Access(anonymous_list=False)},
        {'access': Access(allowed_hosts=['localhost', 'agent.example'])},
        {'access': Access(allowed_hosts=['*'])},
        {'url': 'https://agent.example/joker/'},
    ],
)
def test_settings_for_proxy_turn_steps_off(settings: dict[str, Any]) -> None:
    with local_client(to_a2a(Agent('test'), **settings)) as client:
        assert client.post('/docs/steps').status_code == 404
        assert 'data-steps="false"' in client.get('/docs').text


def fetch_steps(url: str) -> object:
    """What a page of this machine gets from a server of this machine."""
    return httpx.post(f'{url}docs/steps', headers={'Origin': url.removesuffix('/')}, timeout=LIMIT).json()


def test_public_host_names_at_start_turn_steps_off(tmp_path: Path) -> None:
    (tmp_path / 'joker.py').write_text(APP_MODULE)
    names = ['localhost', 'agent.example']
    options = [option for name in names for option in ('--allowed-host', name)]
    with serve(Agent('test'), allowed_hosts=names, anonymous=True) as server:
        found = [fetch_steps(server.url)]
    command = ('-m', 'pydantic_ai_a2a', 'serve', 'joker:agent', '--port', '0', '--anonymous', *options)
    for arguments in (('joker.py', *names), command):
        with process(*arguments, cwd=tmp_path) as server:
            found.append(fetch_steps(server.url))
    assert found == [None, None, None]


def test_public_host_of_sibling_app_turns_steps_off() -> None:
    parent = Starlette()
    mount(parent, '/open', to_a2a(Agent('test')))
    mount(parent, '/named', to_a2a(Agent('test'), access=Access(allowed_hosts=['agent.example'])))
    with serve(parent, anonymous=True) as server:
        headers = {'Origin': server.url.removesuffix('/')}
        found = httpx.post(f'{server.url}open/docs/steps', headers=headers, timeout=LIMIT).json()
    assert found is None


def test_local_host_names_at_start_leave_steps_on() -> None:
    with serve(Agent('test'), allowed_hosts=['localhost', '127.0.0.1']) as server:
        assert fetch_steps(server.url) == {}


def test_local_host_names_of_app_leave_steps_on() -> None:
    access = Access(allowed_hosts=['localhost', '127.0.0.1'], anonymous_list=True)
    with local_client(to_a2a(Agent('test'), url='http://[::1]:8000/', access=access)) as client:
        assert steps_of(client) == {}


def test_page_gets_steps_of_own_tenant_only() -> None:
    with local_client(to_a2a(Agent('test'), access=Access(tenants=['acme', 'apex']))) as client:
        assert steps_of(client, tenant='/acme') == {}
        task_id = task_of_message(client, message('Hello.'), tenant='/acme')['id']
        found = [steps_of(client, task_id, tenant=tenant) for tenant in ('', '/acme', '/apex')]
    answer = [{'kind': 'prompt', 'text': 'Hello.'}, {'kind': 'text', 'text': 'success (no tool calls)'}]
    assert found == [{}, {task_id: answer}, {}]


def test_steps_beyond_newest_hundred_tasks_come_from_conversation() -> None:
    with local_client(to_a2a(Agent('test'))) as client:
        steps_of(client)
        ids = [task_of_message(client, message(str(n)))['id'] for n in range(101)]
        steps = steps_of(client, ids[0], ids[-1])
    # The oldest task has its steps from its conversation.
    assert [steps[task_id][0]['text'] for task_id in (ids[0], ids[-1])] == ['0', '100']


async def test_steps_cut_long_results_and_omit_files() -> None:
    file = BinaryContent(b'a file', media_type='application/pdf')
    messages = [
        ModelRequest([UserPromptPart(['Read.', file])]),
        ModelResponse([ToolCallPart('read', {}, 'call')]),
        ModelRequest([ToolReturnPart('read', ['long' * 2_000, file], 'call')]),
    ]
    trace = Trace()
    trace.keep('task', 'run', messages)
    prompt, _, result = await trace.steps('task', 'context', InMemoryConversationStore())
    assert prompt == {'kind': 'prompt', 'text': 'Read.'}
    assert (len(result['result']), result['result'][-5:]) == (4_001, 'long…')


def test_failed_first_request_keeps_prompt_step() -> None:
    with local_client(to_a2a(Agent(scripted_model(RuntimeError('broken'))))) as client:
        steps_of(client)
        task = task_of_message(client, message('Fail.'))
        steps = steps_of(client, task['id'])
    assert task['status']['state'] == 'TASK_STATE_FAILED'
    error = {'kind': 'error', 'text': 'RuntimeError: broken'}
    assert steps == {task['id']: [{'kind': 'prompt', 'text': 'Fail.'}, error]}


def test_steps_before_first_visit_come_from_conversation() -> None:
    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if prompt(messages) == 'Fail.':
            raise RuntimeError('broken')
        return ModelResponse([TextPart('Done.')])

    with local_client(to_a2a(Agent(FunctionModel(answer), system_prompt='Be kind.'))) as client:
        ids = [task_of_message(client, message(text))['id'] for text in ('Work.', 'Fail.')]
        steps = steps_of(client, *ids)
    assert steps == {ids[0]: [{'kind': 'prompt', 'text': 'Work.'}, {'kind': 'text', 'text': 'Done.'}], ids[1]: []}


def test_steps_before_first_visit_include_run_after_approval() -> None:
    def pay() -> str:
        return 'paid'

    model = scripted_model(ToolCallPart('pay', {}, 'c1'), 'Paid.')
    with local_client(to_a2a(Agent(model, tools=[Tool(pay, requires_approval=True)]))) as client:
        task = task_of_message(client, message('Pay.'))
        task_of_message(client, answer_message(task, approve('c1')))
        steps = steps_of(client, task['id'])
    assert [step['kind'] for step in steps[task['id']]] == ['prompt', 'call', 'resumed', 'return', 'text']
