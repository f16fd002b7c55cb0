"""Approvals, questions and sign-ins in the playground."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from playwright.async_api import Locator, Page, Route, expect
from pydantic import BaseModel, Field
from pydantic_ai import Agent, TextOutput, Tool
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.models.test import TestModel

from pydantic_ai_a2a import (
    A2AClient,
    Approvals,
    AuthRequired,
    BearerAuth,
    Caller,
    InputRequired,
    Messages,
    RemoteAgent,
    WaitingTask,
    serve,
    to_a2a,
)

from ..agents import clerk_agent, scripted_model
from ..cases import each_case
from ..client.agents.canned_tasks import DONE, adk_confirmation, task_with_confirmations
from ..client.canned_agent import CannedAgent, stream_response
from .agents import agent_with_question, file_keeper, scripted, tool_call
from .conftest import Visit, leave_out_replay, send_message, sign_in


class Trip(BaseModel):
    city: str
    days: int = Field(ge=1)


SCROLL_POSITION = "document.getElementById('thread').scrollTop"
TOKEN = 'a-long-secret-token-of-ada'


def approval_forms(page: Page) -> Locator:
    return page.get_by_role('form', name='Approval: delete_file')


async def test_approval_form_survives_reload_and_changes_arguments(open_playground: Visit) -> None:
    page = await open_playground(to_a2a(file_keeper()))
    await send_message(page, 'Tidy up.')
    await expect(approval_forms(page).get_by_label('path')).to_have_value('old.txt')
    await page.reload()
    await expect(page.get_by_text('I found an old file.')).to_have_count(1)
    await approval_forms(page).get_by_label('path').fill('older.txt')
    await approval_forms(page).get_by_label('force').check()
    await approval_forms(page).get_by_role('button', name='Approve').click()
    await expect(page.get_by_text("Results: ['older.txt is deleted (force=True)']")).to_have_count(1)
    await expect(approval_forms(page)).to_have_count(0)
    await expect(page.get_by_text('Approved delete_file')).to_have_count(1)


async def test_calls_are_approved_and_denied_separately(open_playground: Visit) -> None:
    app = to_a2a(file_keeper())
    page = await open_playground(app)
    await send_message(page, 'Tidy all.')
    await expect(approval_forms(page)).to_have_count(2)
    await approval_forms(page).first.get_by_label('Reason').fill('It is needed.')
    await approval_forms(page).first.get_by_role('button', name='Deny').click()
    await expect(approval_forms(page)).to_have_count(1)
    await expect(page.get_by_text('Denied delete_file: It is needed.')).to_have_count(1)
    await expect(approval_forms(page).get_by_label('path')).to_have_value('new.txt')
    await approval_forms(page).get_by_role('button', name='Approve').click()
    await expect(page.get_by_text("'new.txt is deleted (force=False)'")).to_have_count(1)
    [task] = await app.list_tasks()
    data = [part['data'] for message in task.get('history', ()) for part in message['parts'] if 'data' in part]
    answers = [item['callAnswers'] for item in data if 'callAnswers' in item]
    ids = [call['id'] for call in next(item['pending'] for item in data if 'pending' in item)]
    assert answers == [
        [{'id': ids[0], 'decision': 'deny', 'reason': 'It is needed.'}],
        [{'id': ids[1], 'decision': 'approve'}],
    ]


@each_case('decision', ['Approve', 'Deny'])
async def test_all_calls_are_decided_together(open_playground: Visit, decision: str) -> None:
    app = to_a2a(file_keeper())
    page = await open_playground(app)
    await send_message(page, 'Tidy all.')
    await expect(approval_forms(page).first).to_contain_text('Delete a file.')
    await approval_forms(page).last.get_by_label('path').fill('newer.txt')
    await page.get_by_role('group', name='2 calls').get_by_role('button', name=f'{decision} all 2').click()
    await expect(approval_forms(page)).to_have_count(0)
    done = 'Approved delete_file' if decision == 'Approve' else 'Denied delete_file'
    log = page.get_by_role('log')
    await expect(log.get_by_text(done)).to_have_count(2)
    await expect(log.get_by_text('{"path":"old.txt"}', exact=True)).to_have_count(1)
    await expect(log.get_by_role('cell', name='newer.txt')).to_have_count(int(decision == 'Approve'))
    [task] = await app.list_tasks()
    answers = [part for message in task.get('history', ()) for part in message['parts'] if 'data' in part]
    assert len([part for part in answers if 'callAnswers' in part.get('data', {})]) == 1


@each_case('text, button', [('Tidy up.', 'Approve'), ('Tidy all.', 'Approve all 2')])
async def test_second_press_sends_no_second_decision(open_playground: Visit, text: str, button: str) -> None:
    decided: list[str] = []
    released = asyncio.Event()

    async def hold(route: Route) -> None:
        decided.append(route.request.url)
        await released.wait()
        await route.continue_()

    page = await open_playground(to_a2a(file_keeper()))
    await send_message(page, text)
    approve = page.get_by_role('log').get_by_role('button', name=button, exact=True)
    await expect(approve).to_have_count(1)
    await page.route('**/message:stream', hold)
    for _ in range(2):
        await approve.press('Enter')
    released.set()
    await expect(page.get_by_text('Results: ')).to_have_count(1)
    assert len(decided) == 1


async def test_stale_form_cannot_decide_newer_call(open_playground: Visit) -> None:
    """Another client has decided meanwhile, and the model calls the tool again under the same id."""
    paid: list[int] = []

    def pay(cents: int) -> str:
        paid.append(cents)
        return 'paid'

    calls = [ToolCallPart('pay', {'cents': cents}, 'local-1') for cents in (5, 1_000_000)]
    agent = Agent(scripted_model(*calls, 'All is paid.'), tools=[Tool(pay, requires_approval=True)])
    page = await open_playground(to_a2a(agent), failures=2)
    await send_message(page, 'Pay.')
    form = page.get_by_role('form', name='Approval: pay')
    await expect(form.get_by_label('cents')).to_have_value('5')
    async with A2AClient(page.url.partition('docs')[0]) as client:
        [waiting] = [listed async for listed in client.list()]
        await (await client.get(waiting.task_id or '')).approve()
    for button in ('Approve', 'Deny'):
        await form.get_by_role('button', name=button).click()
        await expect(form.get_by_role('alert')).to_contain_text('Now the task waits with: May I call pay')
        await expect(form.get_by_role('alert')).to_contain_text('{"cents":1000000}')
    assert paid == [5]
    await page.reload()
    await expect(form.get_by_label('cents')).to_have_value('1000000')
    await form.get_by_role('button', name='Approve').click()
    await expect(page.get_by_text('All is paid.')).to_have_count(1)
    log = page.get_by_role('log')
    await expect(log.get_by_text('Approved pay')).to_have_count(2)
    for shown in ('{"cents":5}', '{"cents":1000000}'):
        await expect(log.locator('.user').get_by_text(shown, exact=True)).to_have_count(1)
    assert paid == [5, 1_000_000]


@pytest.mark.parametrize(('text', 'button'), [('Tidy up.', 'Approve'), ('Tidy all.', 'Approve all 2')])
async def test_decision_without_connection_says_so(open_playground: Visit, text: str, button: str) -> None:
    page = await open_playground(to_a2a(file_keeper()))
    await page.route('**/agent-card.json', leave_out_replay)
    await page.reload()
    await send_message(page, text)
    decide = page.get_by_role('button', name=button)
    await expect(decide).to_have_count(1)
    await page.route('**/message:stream', lambda route: route.abort())
    await decide.click()
    await expect(page.get_by_text('The server cannot be reached.')).to_have_count(1)


async def test_invalid_argument_in_joint_approval_is_shown(open_playground: Visit) -> None:
    page = await open_playground(to_a2a(file_keeper()))
    await send_message(page, 'Tidy all.')
    await approval_forms(page).last.get_by_label('path').fill('')
    together = page.get_by_role('group', name='2 calls')
    await together.get_by_role('button', name='Approve all 2').click()
    await expect(together.get_by_role('alert')).to_have_text('path is required')
    await expect(approval_forms(page)).to_have_count(2)


async def test_form_keeps_invalid_values_and_shows_errors(open_playground: Visit) -> None:
    page = await open_playground(to_a2a(file_keeper()), failures=2)
    await send_message(page, 'Pizza.')
    form = page.get_by_role('form', name='Question: order')
    await expect(form).to_contain_text('Which pizza?')
    await form.get_by_label('Kind').select_option('Funghi')
    await form.get_by_label('Size').select_option('large')
    count = form.get_by_label('Number of pizzas')
    await count.press_sequentially('e')
    await form.get_by_role('button', name='Answer').click()
    await expect(count).to_have_attribute('aria-invalid', 'true')
    await expect(count).to_have_accessible_description('must be a number')
    await expect(count).to_be_focused()
    await count.fill('1.5')
    await form.get_by_role('button', name='Answer').click()
    await expect(count).to_have_accessible_description('must be an integer')
    await expect(count).to_have_value('1.5')
    await count.fill('0')
    await page.keyboard.press('Enter')
    await expect(count).to_have_accessible_description('must be at least 1')
    await count.fill('2')
    await form.get_by_label('Thin crust').check()
    await form.get_by_label('Floor').fill('2.5')
    await form.get_by_role('button', name='Answer').click()
    await expect(form.get_by_label('Street')).to_have_accessible_description('is required')
    await form.get_by_label('Street').fill('Rue 1')
    extras = form.get_by_role('group', name='Extras')
    for extra in ('olives', 'nuts', 'capers'):
        await extras.get_by_role('button', name='Add').click()
        await page.keyboard.type(extra)
    await extras.get_by_role('button', name='Remove Extras 2').click()
    await expect(extras.get_by_role('textbox')).to_have_count(2)
    await form.get_by_role('button', name='Answer').click()
    await expect(page.get_by_text("{'kind': 'Funghi', 'size': 'large', 'count': 2, 'thin': True,")).to_have_count(1)
    await expect(
        page.get_by_text("'to': {'street': 'Rue 1', 'floor': 2.5}, 'extras': ['olives', 'capers']}")
    ).to_have_count(1)


async def test_dates_lists_and_choices_have_matching_inputs(open_playground: Visit) -> None:
    trip = {
        'type': 'object',
        'required': ['start', 'city', 'nights'],
        'properties': {
            'start': {'type': 'string', 'format': 'date'},
            'wake': {'type': 'string', 'format': 'time'},
            'at': {'type': 'string', 'format': 'date-time'},
            'mail': {'type': 'string', 'format': 'email'},
            'city': {'type': 'string'},
            'nights': {'type': 'array', 'items': {'type': 'integer'}},
            'flexible': {'anyOf': [{'type': 'boolean'}, {'type': 'null'}]},
        },
    }
    page = await open_playground(to_a2a(agent_with_question(trip)))
    await send_message(page, 'Ask.')
    form = page.get_by_role('form', name='Question: ask')
    names = ('start', 'wake', 'at', 'mail')
    types = [await form.get_by_label(name, exact=False).first.get_attribute('type') for name in names]
    assert types == ['date', 'time', 'datetime-local', 'email']
    await form.get_by_label('mail').fill('ada')
    await form.get_by_role('button', name='Answer').click()
    for name in ('start', 'city'):
        await expect(form.get_by_label(name)).to_have_accessible_description('is required')
    await expect(form.get_by_label('mail')).to_have_accessible_description('must be an email address')
    await form.get_by_label('start').fill('2026-05-15')
    await form.get_by_label('mail').fill('ada@example.com')
    await form.get_by_label('city').fill('Rome')
    await form.get_by_label('flexible').select_option('No')
    await form.get_by_role('button', name='Add').click()
    await page.keyboard.type('3')
    await form.get_by_role('button', name='Answer').click()
    await expect(form).to_have_count(0)
    answer = "{'start': '2026-05-15', 'mail': 'ada@example.com', 'city': 'Rome', 'nights': [3], 'flexible': False}"
    await expect(page.get_by_text(answer)).to_have_count(1)


async def test_error_of_list_item_is_shown_at_list_field(open_playground: Visit) -> None:
    pair = {'type': 'array', 'prefixItems': [{'type': 'integer'}, {'type': 'string'}]}
    agent = agent_with_question({'type': 'object', 'properties': {'pair': pair}, 'required': ['pair']})
    page = await open_playground(to_a2a(agent), failures=1)
    await send_message(page, 'Ask.')
    form = page.get_by_role('form', name='Question: ask')
    await form.get_by_label('pair').fill('["one", "a"]')
    await form.get_by_role('button', name='Answer').click()
    await expect(form.locator('.complaint').filter(has_text='must be an integer')).to_have_count(1)
    assert await form.get_by_label('pair').get_attribute('aria-invalid') == 'true'


async def test_message_field_does_not_answer_sign_in(open_playground: Visit) -> None:
    def sign_in(text: str) -> AuthRequired:
        return AuthRequired(text, schemes=['sso'], url='https://sso.example.com/')

    agent = Agent(TestModel(custom_output_text='Please sign in.'), output_type=TextOutput(sign_in), name='keeper')
    page = await open_playground(to_a2a(agent))
    await send_message(page, 'Mail.')
    await expect(page.get_by_role('form', name='Sign-in')).to_have_count(1)
    await expect(page.get_by_role('navigation', name='Tasks')).to_contain_text('auth required')
    field = page.get_by_role('textbox', name='Message', exact=True)
    assert await field.get_attribute('placeholder') == 'Send a message'


async def test_invalid_date_default_is_shown_as_text(open_playground: Visit) -> None:
    day = {'type': 'string', 'format': 'date', 'default': 'not a date'}
    agent = agent_with_question({'type': 'object', 'required': ['day'], 'properties': {'day': day}})
    page = await open_playground(to_a2a(agent))
    await send_message(page, 'Ask.')
    form = page.get_by_role('form', name='Question: ask')
    await expect(form.get_by_label('day')).to_have_value('not a date')
    await form.get_by_role('button', name='Answer').click()
    await expect(form.get_by_label('day')).to_have_accessible_description('must be a date')
    await form.get_by_label('day').fill('2026-05-15')
    await form.get_by_role('button', name='Answer').click()
    await expect(page.get_by_text("{'day': '2026-05-15'}")).to_have_count(1)


async def test_empty_answer_is_not_sent(open_playground: Visit) -> None:
    page = await open_playground(to_a2a(file_keeper()))
    await send_message(page, 'Name it.')
    field = page.get_by_role('form', name='Question: ask_name').get_by_label('Answer')
    await field.press('Enter')
    await expect(field).to_have_accessible_description('is required')
    await field.fill('Ada')
    await field.press('Enter')
    await expect(page.get_by_text("Results: ['Ada']")).to_have_count(1)


async def test_question_can_be_returned_for_change(open_playground: Visit) -> None:
    page = await open_playground(to_a2a(file_keeper()), failures=1)
    await send_message(page, 'Pizza.')
    form = page.get_by_role('form', name='Question: order')
    await form.get_by_role('button', name='Ask again').click()
    await expect(form.get_by_role('alert').filter(has_text='reason')).to_have_count(1)
    await form.get_by_label('Necessary change').fill('Offer pasta.')
    await form.get_by_role('button', name='Ask again').click()
    await expect(page.get_by_text('Asked again order: Offer pasta.')).to_have_count(1)


async def test_new_event_line_does_not_scroll_form(open_playground: Visit) -> None:
    page = await open_playground(to_a2a(file_keeper()), failures=1)
    await page.get_by_role('button', name='Events').click()
    await send_message(page, 'Pizza.')
    await expect(page.get_by_role('log').get_by_role('group').filter(has_text='orderwaits')).to_have_count(1)
    form = page.get_by_role('form', name='Question: order')
    await form.get_by_role('button', name='Ask again').scroll_into_view_if_needed()
    before = await page.evaluate(SCROLL_POSITION)
    await form.get_by_role('button', name='Ask again').click()
    await expect(form.get_by_role('alert').filter(has_text='reason')).to_have_count(1)
    log = page.get_by_role('complementary', name='Requests and events')
    await expect(log.get_by_text('400 POST ./message:stream')).to_have_count(1)
    assert await page.evaluate(SCROLL_POSITION) == before


async def test_task_continues_after_sign_in(open_playground: Visit) -> None:
    page = await open_playground(to_a2a(file_keeper()))
    await send_message(page, 'Mail.')
    form = page.get_by_role('form', name='Sign-in: newest_mail')
    way = form.get_by_role('link', name='https://sso.example.com/start')
    await expect(way).to_have_attribute('rel', 'noopener noreferrer')
    await form.get_by_role('button', name='I have signed in').click()
    await expect(page.get_by_text("Results: ['Lunch?']")).to_have_count(1)


async def test_task_continues_after_server_gets_credentials(open_playground: Visit) -> None:
    app = to_a2a(file_keeper())
    page = await open_playground(app)
    await send_message(page, 'Mail.')
    await expect(page.get_by_role('form', name='Sign-in: newest_mail')).to_have_count(1)
    [task] = await app.list_tasks()
    await app.resume_task(task['id'])
    await expect(page.get_by_text("Results: ['Lunch?']")).to_have_count(1)


async def test_message_field_answers_question_of_agent(open_playground: Visit) -> None:
    script = {'Hello.': [tool_call('final_result', '{"question": "Which **city**?"}')], 'Paris': ['Paris it is.']}
    app = to_a2a(scripted(script, output_type=[str, InputRequired]))
    page = await open_playground(app)
    await send_message(page, 'Hello.')
    await expect(page.get_by_placeholder('Answer the question')).to_have_count(1)
    await expect(page.get_by_text('city', exact=True)).to_have_css('font-weight', '700')
    await send_message(page, 'Paris')
    await expect(page.get_by_text('Paris it is.')).to_have_count(1)
    assert len(await app.list_tasks()) == 1


async def answer_elsewhere(url: str) -> None:
    async with A2AClient(url) as client:
        [task] = [task async for task in client.list()]
        await task.answer('Rome')


async def test_message_field_does_not_answer_later_question(visit_url: Visit) -> None:
    with serve(to_a2a(clerk_agent())) as server:
        page = await visit_url(f'{server.url}docs', failures=1)
        await send_message(page, 'Hello.')
        await expect(page.get_by_text('Which city?')).to_have_count(1)
        await answer_elsewhere(server.url)
        await page.get_by_placeholder('Answer the question').fill('Paris')
        await page.keyboard.press('Enter')
        await expect(page.get_by_role('alert').get_by_text('no longer asks the question').first).to_be_visible()
        await expect(page.get_by_text('Which account shall I delete?')).to_have_count(1)
        await expect(page.get_by_placeholder('Answer the question')).to_have_value('Paris')
        await page.get_by_placeholder('Answer the question').fill('No. 7')
        await page.keyboard.press('Enter')
        await expect(page.get_by_text('Hello. + Rome + No. 7')).to_have_count(1)


async def test_sign_in_form_does_not_answer_later_question(visit_url: Visit) -> None:
    with serve(to_a2a(clerk_agent())) as server:
        page = await visit_url(f'{server.url}docs', failures=None)
        async with A2AClient(server.url) as client:
            task = await client.send('sign in')
            await page.goto(f'{server.url}docs?task={task.task_id}')
            await expect(page.get_by_role('region', name='Inbox').get_by_role('form')).to_have_count(1)
            await answer_elsewhere(server.url)
            form = page.get_by_role('region', name='Inbox').get_by_role('form').first
            await form.get_by_role('button').click()
            await expect(form.get_by_text('Somebody else was first: the task is auth required')).to_have_count(1)
            assert (await client.get(task.task_id or '')).text.endswith('Which account shall I delete?')


def is_chief(caller: Caller, task: WaitingTask) -> bool:
    return caller.id == 'chief'


@each_case('rule', ['files:approve', is_chief])
async def test_conversation_waits_for_approver(visit_url: Visit, rule: Any) -> None:
    chief = Caller(id='chief', scopes=frozenset({'files:approve'}))
    auth = BearerAuth({TOKEN: 'ada', TOKEN.replace('ada', 'chief'): chief})
    with serve(to_a2a(file_keeper(), auth=auth, approvals=Approvals(approvers=rule))) as server:
        page = await visit_url(f'{server.url}docs', failures=None)
        await sign_in(page, TOKEN)
        await send_message(page, 'Tidy up.')
        waits = page.get_by_role('group', name='Waits for an approver: delete_file')
        await expect(waits.get_by_text('"old.txt"')).to_have_count(1)
        await expect(page.get_by_role('button', name='Approve')).to_have_count(0)
        await page.reload()
        await sign_in(page, TOKEN)
        await expect(waits).to_have_count(1)
        await expect(page.get_by_role('button', name='Approve')).to_have_count(0)
        async with A2AClient(server.url, auth=TOKEN.replace('ada', 'chief')) as client:
            [task] = [task async for task in client.inbox()]
            await task.approve()
        await expect(page.get_by_text("Results: ['old.txt is deleted (force=False)']")).to_have_count(1)
        await expect(waits).to_have_count(0)


async def test_typed_input_has_form(open_playground: Visit) -> None:
    page = await open_playground(to_a2a(Agent('test'), messages=Messages(input_type=Trip)), failures=1)
    form = page.get_by_role('form', name='Data')
    await form.get_by_label('City').fill('Rome')
    await form.get_by_label('Days').fill('0')
    await form.get_by_role('button', name='Send').click()
    complaint = 'Input should be greater than or equal to 1'
    await expect(form.get_by_label('Days')).to_have_accessible_description(complaint)
    await form.get_by_label('Days').fill('3')
    await page.keyboard.press('Enter')
    await expect(page.get_by_text('success (no tool calls)')).to_have_count(1)
    await expect(page.get_by_role('log').get_by_role('cell')).to_have_text(['Rome', '3'])


async def test_loading_page_does_not_take_focus(visit_url: Visit) -> None:
    listed = asyncio.Event()

    async def hold(route: Route) -> None:
        await listed.wait()
        await route.continue_()

    app = to_a2a(Agent('test'), messages=Messages(input_type=Trip), auth=BearerAuth({TOKEN: 'ada'}))
    with serve(app) as server:
        page = await visit_url(f'{server.url}docs#context=unknown', failures=None)
        token = page.get_by_role('form', name='Credentials').get_by_label('Bearer token')
        await page.route('**/tasks?*', hold)
        await page.reload()
        await token.fill(TOKEN[:8])
        listed.set()
        await expect(page.get_by_role('form', name='Data')).to_have_count(1)
        await page.keyboard.type(TOKEN[8:])
        await expect(token).to_have_value(TOKEN)


async def test_direct_reply_is_shown_without_task(open_playground: Visit) -> None:
    app = to_a2a(Agent('test'), messages=Messages(reply='message'))
    page = await open_playground(app)
    for count in (1, 2):
        await send_message(page, 'Hello.')
        await expect(page.get_by_text('success (no tool calls)')).to_have_count(count)
    await expect(page.get_by_role('button', name='Cancel task')).to_have_count(0)
    assert '#context=' in page.url
    assert await app.list_tasks() == []


async def test_adk_confirmation_shows_draft_and_hint(open_playground: Visit) -> None:
    canned = CannedAgent(
        stream_response({'task': task_with_confirmations(adk_confirmation())}), stream_response({'task': DONE})
    )
    page = await open_playground(to_a2a(RemoteAgent(canned.app)))
    await send_message(page, 'Tidy up.')
    await expect(approval_forms(page)).to_contain_text('Dear Ann,')
    await expect(approval_forms(page)).to_contain_text('It is the only copy.')
    await approval_forms(page).get_by_role('button', name='Approve').click()
    await expect(page.get_by_text('Done.', exact=True)).to_have_count(1)
