"""The command `send` at a terminal: answers to earlier questions, sign-ins, and approvals that others give."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from pydantic_ai_a2a import A2AClient, Approvals, BearerAuth, Caller, WaitingTask, serve, to_a2a
from pydantic_ai_a2a.commands import remote_conversation
from pydantic_ai_a2a.types.a2a_objects import TaskState

from ..agents import clerk_agent
from ..behaviour.pending_calls import ApprovalAgent
from ..bounds import LIMIT
from ..cases import each_case
from ..client.agents.canned_tasks import DONE, pending_call, task_waiting_with
from ..client.canned_agent import CannedAgent, result_response, serve_canned
from .command import Step, process_in_terminal, run_at_terminal, run_command

TOKENS = {name: f'a-long-secret-token-of-{name}' for name in ('ann', 'bob')}


def is_bob(caller: Caller, task: WaitingTask) -> bool:
    return caller.id == 'bob'


def guarded_app(rule: Any) -> Any:
    """A server where ann asks, and bob decides."""
    scopes = {'bob': frozenset({'approve'})}
    callers = {token: Caller(id=name, scopes=scopes.get(name, frozenset())) for name, token in TOKENS.items()}
    return to_a2a(ApprovalAgent().agent, auth=BearerAuth(callers), approvals=Approvals(approvers=rule))


def act_on_task(url: str, act: Callable[[Any], Any], name: str | None = None) -> TaskState | None:
    """Do something with the newest result of the inbox of a caller, and return the state of the task then."""

    async def do() -> TaskState | None:
        auth = None if name is None else TOKENS[name]
        async with A2AClient(url, auth=auth, timeout=LIMIT) as client:
            task = await anext(client.inbox())
            await act(task)
            return (await client.get(task.task_id)).state

    return asyncio.run(do())


def send(monkeypatch: pytest.MonkeyPatch, *arguments: str, steps: Sequence[Step]) -> tuple[object, str]:
    """The exit code of `send`, and the text of its terminal, where somebody does the steps."""
    code, terminal = run_at_terminal(monkeypatch, 'send', *arguments, steps=steps)
    return code, terminal.text


@each_case('prompt, typed', [('hello', 'Paris\n'), ('sign in', 'y\n')])
def test_answer_of_send_to_earlier_question_is_refused(
    prompt: str, typed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asks = 'Answer' if prompt == 'hello' else 'Have you signed in?'
    with serve(to_a2a(clerk_agent())) as server:
        steps: list[Step] = [
            ('Which city?', ''),
            (asks, lambda: act_on_task(server.url, lambda task: task.answer('Rome'))),
            ('', typed),
            ('the agent refuses the answer: The task is', ''),
            ('Which account shall I delete?', ''),
            (asks, typed),
        ]
        code, text = send(monkeypatch, server.url, prompt, steps=steps)
    assert (code, f'{prompt} + Rome' in text) == (0, True)


def test_send_follows_task_answered_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(to_a2a(clerk_agent())) as server:

        def answer_elsewhere() -> None:
            for text in ('Rome', 'No. 7'):
                act_on_task(server.url, lambda task, text=text: task.answer(text))

        steps: list[Step] = [('Which city?', answer_elsewhere), ('', 'Paris\n')]
        code, text = send(monkeypatch, server.url, 'hello', steps=steps)
    assert code == 0
    assert 'The task is completed, and no longer asks' in text
    assert 'hello + Rome + No. 7' in text


def test_enter_is_no_answer_to_sign_in(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [('Have you signed in? [y/n]', typed) for typed in ('\n', 'n\n')]
    with serve(to_a2a(clerk_agent())) as server:
        code, text = send(monkeypatch, server.url, 'sign in', steps=steps)
    assert (code, 'Which account' in text) == (1, False)


@each_case('rule', ['approve', is_bob])
def test_send_waits_for_approver(rule: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('ANN', TOKENS['ann'])
    monkeypatch.setattr(remote_conversation, 'PAUSES', (0.01, 0.05))
    with serve(guarded_app(rule)) as server:
        steps: list[Step] = [
            ('May I call delete {"path":"a"}?', ''),
            (
                'waits for an approver; Ctrl-C cancels the task',
                lambda: act_on_task(server.url, lambda task: task.approve(), 'bob'),
            ),
        ]
        code, text = send(monkeypatch, server.url, 'delete', '--token-env', 'ANN', steps=steps)
    assert (code, 'Approve?' in text, 'deleted a' in text) == (0, False, True)


def test_send_asks_owner_and_waits_for_approver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('ANN', TOKENS['ann'])
    with serve(guarded_app('approve')) as server:
        steps: list[Step] = [
            ('Waiting for the result of fetch', ''),
            ('Answer', '"page"\n'),
            ('Please answer ask', ''),
            ('Answer', '"small"\n'),
            ('waits for an approver', lambda: act_on_task(server.url, lambda task: task.deny(), 'bob')),
        ]
        code, text = send(monkeypatch, server.url, 'mixed', '--token-env', 'ANN', steps=steps)
    assert (code, 'Approve?' in text, 'page + The tool call was denied. + small' in text) == (0, False, True)


@each_case('rule', ['approve', is_bob])
def test_send_asks_owner_with_approval_rights(rule: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('BOB', TOKENS['bob'])
    with serve(guarded_app(rule)) as server:
        code, text = send(monkeypatch, server.url, 'delete', '--token-env', 'BOB', steps=[('Approve?', 'y\n')])
    assert (code, 'deleted a' in text) == (0, True)


def test_send_asks_newest_question(monkeypatch: pytest.MonkeyPatch) -> None:
    before = task_waiting_with(pending=[pending_call('approval', decidedBy='approver')])
    now = task_waiting_with(pending=[pending_call(text='Which account?')])
    answers = result_response({'task': before}), result_response(now), result_response({'task': DONE})
    with serve_canned(CannedAgent(*answers)) as server:
        code, text = send(monkeypatch, server.url, 'hello', steps=[('Which account?', '7\n')])
    assert (code, 'Which account?' in text) == (0, True)


def test_ctrl_c_cancels_task_awaiting_approver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('ANN', TOKENS['ann'])
    with (
        serve(guarded_app('approve')) as server,
        process_in_terminal('send', server.url, 'delete', '--token-env', 'ANN') as (terminal, process),
    ):
        terminal.until('waits for an approver; Ctrl-C cancels the task')
        terminal.type('\x03')
        assert process.wait(LIMIT) == 130
    assert 'is canceled' in terminal.close()


def test_send_without_terminal_reports_wait_for_approver(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv('ANN', TOKENS['ann'])
    with serve(guarded_app('approve')) as server:
        outcome = run_command(capsys, 'send', server.url, 'delete', '--token-env', 'ANN')
    assert (outcome.code, 'waits for an approver' in outcome.err, '--approve' in outcome.err) == (3, True, False)


def test_approver_command_prints_state_without_answer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, token in TOKENS.items():
        monkeypatch.setenv(name.upper(), token)
    with serve(guarded_app('approve')) as server:
        run_command(capsys, 'send', server.url, 'delete', '--token-env', 'ANN')
        [task] = run_command(capsys, 'inbox', server.url, '--json', '--token-env', 'BOB').lines
        watched = run_command(capsys, 'watch', server.url, task['id'], '--token-env', 'BOB')
        decided = run_command(capsys, 'send', server.url, '--task', task['id'], '--approve', '--token-env', 'BOB')
    assert watched.err == (
        f'pydantic-ai-a2a: the task waits; answer with --task {task["id"]}; approve with --approve, deny with --deny'
        ' REASON\n'
    )
    assert decided == (0, '', f'pydantic-ai-a2a: the task {task["id"]} is completed; its owner gets the answer\n')
