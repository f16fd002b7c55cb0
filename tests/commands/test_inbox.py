"""The command `inbox`: the list of what waits for the caller, and decisions on the screen."""

from __future__ import annotations

import asyncio
import io
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from select import select
from types import SimpleNamespace
from typing import Any

import pytest
from click import UsageError
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel
from starlette.responses import Response

from pydantic_ai_a2a import A2AClient, Approvals, RemoteResult, serve, to_a2a
from pydantic_ai_a2a.commands import inbox_screen
from pydantic_ai_a2a.commands.inbox_screen import Choice
from pydantic_ai_a2a.commands.terminal_keys import Keys
from pydantic_ai_a2a.commands.watch_option import check_watch

from ..agents import clerk_agent
from ..bounds import LIMIT
from ..cases import each_case
from ..client.agents.canned_tasks import DONE, pending_call, task_waiting_with
from ..client.canned_agent import (
    CARD,
    CannedAgent,
    error_response,
    list_response,
    result_response,
    serve_canned,
)
from .agents import shop_app
from .command import Step, Terminal, in_terminal, process_in_terminal, run_at_terminal, run_command

Capture = pytest.CaptureFixture[str]
DOWN, ENTER = '\x1b[B', '\r'
EMPTY = list_response()


@pytest.fixture
def url() -> Iterator[str]:
    with serve(shop_app()) as server:
        yield server.url.removesuffix('/')


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (('TERM', 'xterm'), ('COLUMNS', '120'), ('LINES', '12')):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(inbox_screen, 'PERIOD', 0.05)


def send(url: str, *texts: str) -> list[RemoteResult]:
    async def do() -> list[RemoteResult]:
        async with A2AClient(url, timeout=LIMIT) as client:
            return [[update async for update in client.stream(text)][-1].result for text in texts]

    return asyncio.run(do())


def decide(url: str, task_id: str, act: Callable[[RemoteResult], Awaitable[object]]) -> None:
    """Approve or answer a task, as somebody else."""

    async def do() -> None:
        async with A2AClient(url, timeout=LIMIT) as client:
            await act(await client.get(task_id))

    asyncio.run(do())


def state_of(url: str, task_id: str) -> str | None:
    async def do() -> str | None:
        async with A2AClient(url, timeout=LIMIT) as client:
            return (await client.get(task_id)).state

    return asyncio.run(do())


def watch(monkeypatch: pytest.MonkeyPatch, url: str, *steps: Step) -> tuple[object, Terminal]:
    """The exit code of `inbox --watch`, and its terminal, where somebody does the steps."""
    return run_at_terminal(monkeypatch, 'inbox', url, '--watch', steps=steps)


def test_inbox_is_listed_as_table_and_json(url: str, capsys: Capture) -> None:
    assert run_command(capsys, 'inbox', url) == (0, '', 'pydantic-ai-a2a: nothing waits for you\n')
    assert run_command(capsys, 'inbox', url, '--json') == (0, '', '')
    [delete, order, pay, _] = send(url, 'delete', 'order', 'pay', 'hello')
    [head, *rows] = run_command(capsys, 'inbox', url).out.splitlines()
    assert head.split() == ['TASK', 'WAITS', 'FOR', 'SINCE', 'QUESTION']
    assert [row.split()[:2] for row in rows] == [
        [pay.task_id, 'sign-in'],
        [order.task_id, 'answer'],
        [delete.task_id, 'approval'],
    ]
    assert rows[2].endswith('May I call delete {"path":"a.txt"}?')
    [line] = run_command(capsys, 'inbox', url, '--json', '--limit', '1').lines
    assert (line['id'], line['status']['state']) == (pay.task_id, 'TASK_STATE_AUTH_REQUIRED')


def test_long_question_is_shortened_in_list(capsys: Capture) -> None:
    call = pending_call('approval', text='Really?\n' * 20)
    page = list_response(task_waiting_with(pending=[call]))
    with serve_canned(CannedAgent(page, EMPTY)) as server:
        [_, row] = run_command(capsys, 'inbox', server.url).out.splitlines()
    assert row == f't     approval   -      {"Really? " * 7}R...'


def test_inbox_of_server_without_lists_fails(capsys: Capture) -> None:
    card = {**CARD, 'supportedInterfaces': [{**CARD['supportedInterfaces'][0], 'protocolVersion': '0.3'}]}
    canned = CannedAgent(EMPTY, card=card)
    with serve(canned.app, anonymous=True) as server:
        canned.card = {**card, 'supportedInterfaces': [{**card['supportedInterfaces'][0], 'url': server.url}]}
        refused = run_command(capsys, 'inbox', server.url)
    assert refused.code == 1
    assert 'A2A 0.3 has no ListTasks over JSON-RPC.' in refused.err


# --- on the screen --------------------------------------------------------------------------------------------------


def test_chosen_task_is_approved_at_prompt(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    older, newer = send(url, 'delete', 'delete')
    code, terminal = watch(
        monkeypatch,
        url,
        ('2 in the inbox', DOWN),
        (f'>  {older.task_id}', ENTER),
        (f'The task {older.task_id} waits since', ''),
        ('May I call delete {"path":"a.txt"}?', ''),
        ('Approve? [y]es, [n]o, [e]dit the arguments', 'y\n'),
        ('1 in the inbox', 'q'),
    )
    assert code == 0
    assert f'the task {older.task_id} has the answer and is' in terminal.text
    assert state_of(url, newer.task_id) == 'input-required'
    send_and_wait_until_completed(url, older.task_id)


def send_and_wait_until_completed(url: str, task_id: str) -> None:
    async def do() -> None:
        async with A2AClient(url, timeout=LIMIT) as client:
            *_, last = [update async for update in client.subscribe(task_id)]
            assert last.state == 'completed'

    asyncio.run(do())


def test_single_key_press_decides_no_task(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    [task] = send(url, 'delete')
    code, terminal = watch(
        monkeypatch,
        url,
        ('1 in the inbox', 'yYaA \t'),
        ('', f'k{ENTER}y\ry\r'),  # keys before the question
        ('Approve?', '\n'),
        ('Approve?', 'n\n'),
        ('Reason', 'Keep it.\n'),
        ('Nothing waits for you', 'q'),
    )
    assert code == 0, terminal.text

    async def text() -> str:
        async with A2AClient(url, timeout=LIMIT) as client:
            *_, last = [update async for update in client.subscribe(task.task_id)]
            return last.result.text

    assert asyncio.run(text()) == 'The tool says: Keep it.'


def test_keys_typed_before_prompt_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    with in_terminal(monkeypatch) as terminal, Keys() as keys:
        with keys.single():
            terminal.type('y\n')
            select([sys.stdin], [], [], LIMIT)
        assert select([sys.stdin], [], [], 0)[0] == []
    terminal.close()


def test_end_of_terminal_ends_inbox(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    os.close(write)
    with os.fdopen(read) as stdin, monkeypatch.context() as patch:
        patch.setattr(sys, 'stdin', stdin)
        with Keys() as keys:
            assert keys.read() == ['quit']


def test_end_of_inbox_input_decides_no_task(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    [task] = send(url, 'delete')
    code, terminal = watch(
        monkeypatch, url, ('1 in the inbox', ENTER), ('Approve?', '\x04'), ('1 in the inbox', '\x04')
    )
    assert code == 0
    assert f'nothing is decided about the task {task.task_id}' in terminal.text
    assert state_of(url, task.task_id) == 'input-required'


def test_ctrl_c_ends_inbox_on_screen(url: str) -> None:
    [task] = send(url, 'delete')
    with process_in_terminal('inbox', url, '--watch') as (terminal, process):
        terminal.until_new('1 in the inbox')
        terminal.type(ENTER)
        terminal.until_new('Approve?')
        terminal.type(
            '\x04'
        )  # Ctrl-D: a Ctrl-C between the prompt and the wait for its keys would wait for the next one
        terminal.until_new('1 in the inbox')
        terminal.type('\x03')
        assert process.wait(LIMIT) == 130
    assert 'interrupted' in terminal.close()
    assert state_of(url, task.task_id) == 'input-required'


def deleting_app(**options: Any) -> Any:
    agent = Agent(TestModel(), name='keeper')
    agent.tool_plain(name='delete', requires_approval=True)(lambda: 'deleted')
    return to_a2a(agent, **options)


def test_call_decided_by_another_person_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(deleting_app()) as server:
        [task] = send(server.url, 'Go.')
        code, terminal = watch(
            monkeypatch,
            server.url,
            ('1 in the inbox', ENTER),
            ('Approve?', lambda: decide(server.url, task.task_id, RemoteResult.approve)),
            ('', 'y\n'),
            ('somebody else has decided', ''),
            ('is completed and accepts no more messages', ''),
            ('>', ENTER),
            ('no longer waits', DOWN),
            ('Nothing waits for you', 'q'),
        )
    assert code == 0, terminal.text


@each_case('prompt, typed', [('hello', 'Paris\n'), ('sign in', 'n\n')])
def test_answer_to_earlier_question_is_not_sent(prompt: str, typed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asks = 'Answer' if prompt == 'hello' else 'Have you signed in?'
    with serve(to_a2a(clerk_agent())) as server:
        [task] = send(server.url, prompt)
        code, terminal = watch(
            monkeypatch,
            server.url,
            ('1 in the inbox', ENTER),
            ('Which city?', ''),
            (asks, lambda: decide(server.url, task.task_id, lambda result: result.answer('Rome'))),
            ('', typed),
            ('has gone on without the answer, which is not sent', ''),
            ('1 in the inbox', 'q'),
        )
        assert code == 0, terminal.text
        assert state_of(server.url, task.task_id) == task.state


@each_case('decided, chosen', [(0, 1), (1, 2), (2, 1)])
def test_decided_row_stays_until_next_key(decided: int, chosen: int) -> None:
    with serve(deleting_app()) as server:
        tasks = [*reversed(send(server.url, '1', '2', '3'))]
    choice = Choice()
    choice.update(tasks)
    choice.move(decided)
    choice.update([task for n, task in enumerate(tasks) if n != decided])
    assert (choice.at, choice.task) == (decided, None)
    assert 'no longer waits' in choice.rows()[decided][-1]
    choice.move(1 if decided < 2 else -1)
    assert choice.task is tasks[chosen]
    assert len(choice.rows()) == 2


def test_inbox_selection_survives_new_tasks() -> None:
    with serve(deleting_app()) as server:
        new, *tasks = reversed(send(server.url, '1', '2', '3'))
    choice = Choice()
    choice.update([])
    assert (choice.task, choice.rows()) == (None, [])
    choice.update(tasks)
    choice.move(1)
    choice.update([new, *tasks])
    assert (choice.at, choice.task) == (2, tasks[1])
    for _ in range(3):
        choice.remove()
    assert (choice.at, choice.task) == (0, None)


def test_question_and_sign_in_are_answered_on_screen(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pay, order = send(url, 'pay', 'order')
    code, terminal = watch(
        monkeypatch,
        url,
        ('2 in the inbox', ENTER),
        ('How many?', '3\n'),
        ('1 in the inbox', ENTER),
        ('Have you signed in?', 'n\n'),
        ('Nothing waits for you', 'q'),
    )
    assert code == 0
    assert f'the task {pay.task_id} has the answer and is canceled' in terminal.text
    send_and_wait_until_completed(url, order.task_id)


def test_whole_call_is_shown_before_approval(monkeypatch: pytest.MonkeyPatch) -> None:
    args = {'account': 738529527931269425, 'to': 'ann\u200b@bank.example', 'memo': 'rent ' * 20, 'more': {'ÄÖ': [1.5]}}
    call = pending_call('approval', tool='pay', text='May I pay?', args=args, description='Pay money.')
    page = list_response(task_waiting_with(pending=[call]))
    with serve_canned(CannedAgent(page, EMPTY)) as server:
        _, terminal = watch(
            monkeypatch, server.url, ('1 in the inbox', ENTER), ('Approve?', '\x04'), ('1 in the inbox', 'q')
        )
    shown = terminal.text
    assert 'May I pay?\npay: Pay money.\npay {\n  "account": 738529527931269425,\n' in shown
    assert '"to": "ann\\u200b@bank.example"' in shown
    assert f'"memo": "{args["memo"]}"' in shown


def test_unseen_character_of_short_call_is_shown_as_escape(monkeypatch: pytest.MonkeyPatch) -> None:
    text = 'May I call pay {"to":"ann\u200b@bank.example"}?'
    call = pending_call('approval', tool='pay', text=text, args={'to': 'ann\u200b@bank.example'})
    page = list_response(task_waiting_with(pending=[call]))
    with serve_canned(CannedAgent(page, EMPTY)) as server:
        _, terminal = watch(
            monkeypatch, server.url, ('1 in the inbox', ENTER), ('Approve?', '\x04'), ('1 in the inbox', 'q')
        )
    assert 'May I call pay?\npay {\n  "to": "ann\\u200b@bank.example"\n}' in terminal.text


def test_approval_prompt_says_arguments_are_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(deleting_app(approvals=Approvals(hide_arguments=['delete']))) as server:
        send(server.url, 'Go.')
        _, terminal = watch(
            monkeypatch, server.url, ('1 in the inbox', ENTER), ('Approve?', '\x04'), ('1 in the inbox', 'q')
        )
    assert 'May I call delete?\nThe agent hides the arguments of delete.' in terminal.text


PAGE = list_response(task_waiting_with(pending=[pending_call('approval')]))


def test_list_goes_on_after_unavailable_store(monkeypatch: pytest.MonkeyPatch) -> None:
    canned = CannedAgent(PAGE)

    def answer_with(response: Response) -> Callable[[], None]:
        return lambda: canned.answers.__setitem__(0, response)

    with serve_canned(canned) as server:
        code, terminal = watch(
            monkeypatch,
            server.url,
            ('1 in the inbox', answer_with(error_response(-32000, 'Come back later.', 503, {'Retry-After': '0'}))),
            ('The list is not new: Come back later.', answer_with(Response('', 502))),
            ('has answered with HTTP 502', answer_with(EMPTY)),
            ('Nothing waits for you', 'q'),
        )
    assert code == 0, terminal.text


def test_refused_list_ends_inbox_on_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    with serve_canned(CannedAgent(PAGE, EMPTY, error_response(-32004, 'No lists today.'))) as server:
        code, terminal = watch(monkeypatch, server.url, ('No lists today.', ''))
    assert code == 1, terminal.text


@each_case(
    'answer, told',
    [
        (error_response(-32001, 'Task not found.'), 'the task t no longer waits: somebody else has decided'),
        (error_response(-32602, 'It waits with more.'), 'the answer to the task t is refused: It waits with more.'),
        (Response('', 502), 'it is not known if the answer has reached the task t:'),
    ],
)
def test_failed_or_lost_inbox_answer_is_reported(answer: Response, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Answering(CannedAgent):
        async def _serve(self, request: Any) -> Response:
            body = await request.body()
            if b'SendMessage' in body:
                return answer
            return await super()._serve(request)

    monkeypatch.setattr(inbox_screen, 'PERIOD', LIMIT)
    with serve_canned(Answering(PAGE, EMPTY)) as server:
        code, terminal = watch(
            monkeypatch, server.url, ('1 in the inbox', ENTER), ('Approve?', 'y\n'), (told, ''), ('q ends', 'q')
        )
    assert code == 0, terminal.text


def test_answered_task_leaves_inbox_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox_screen, 'PERIOD', LIMIT)
    with serve_canned(CannedAgent(PAGE, EMPTY, result_response({'task': DONE}))) as server:
        code, terminal = watch(
            monkeypatch,
            server.url,
            ('1 in the inbox', ENTER),
            ('Approve?', 'y\n'),
            ('has the answer', ''),
            ('q ends', 'q'),
        )
    assert code == 0, terminal.text
    assert 'Which one?' not in terminal.text.partition('has the answer')[2]


@each_case(
    'answer',
    [Response('', 502, {'Retry-After': '600'}), error_response(-32000, 'Busy.', 503, {'Retry-After': '600'})],
    ids=['gateway', 'agent'],
)
def test_inbox_obeys_retry_after(answer: Response, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.Event().wait()

    monkeypatch.setattr(inbox_screen, 'asyncio', SimpleNamespace(sleep=sleep))
    with serve_canned(CannedAgent(answer)) as server:
        code, terminal = watch(monkeypatch, server.url, ('The list is not new', 'q'))
    assert (code, pauses) == (0, [600]), terminal.text


def test_broken_question_cannot_be_opened(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    twice = [pending_call('approval', id='x'), pending_call('approval', id='x')]
    page = list_response(task_waiting_with(pending=twice))
    fault = 'The remote task t waits with two calls of the same id.'
    with serve_canned(CannedAgent(page, EMPTY)) as server:
        monkeypatch.setattr(inbox_screen, 'PERIOD', LIMIT)
        code, terminal = watch(
            monkeypatch, server.url, ('1 in the inbox', ENTER), (f'pydantic-ai-a2a: {fault}', ''), ('q ends', 'q')
        )
    assert code == 0, terminal.text


def test_watch_of_inbox_needs_suitable_terminal(url: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusal(*options: str) -> str:
        code, terminal = run_at_terminal(monkeypatch, 'inbox', url, '--watch', *options)
        assert code == 2
        return ' '.join(terminal.text.split())

    without = run_command(capsys, 'inbox', url, '--watch')
    assert (without.code, '--watch needs a UTF-8 terminal' in without.err) == (2, True)
    with in_terminal(monkeypatch) as terminal, monkeypatch.context() as patch:
        patch.setattr(sys, 'stdout', io.TextIOWrapper(io.BytesIO(), 'utf-8'))  # a file
        with pytest.raises(UsageError, match='--watch needs a UTF-8 terminal'):
            check_watch(as_json=False)
    terminal.close()
    assert '--watch and --json cannot be combined' in refusal('--json')
    monkeypatch.setitem(sys.modules, 'rich', None)
    assert "--watch needs the extra `cli`: pip install 'pydantic-ai-a2a[cli]', in a checkout '.[cli]'" in refusal()
