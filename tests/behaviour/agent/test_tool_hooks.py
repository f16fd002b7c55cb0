"""Hooks around tool calls: the arguments that ran, the ends of calls, and hooks that fail."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, FunctionToolset, ModelRetry, RunContext
from pydantic_ai.capabilities import Hooks
from pydantic_ai.exceptions import ApprovalRequired
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.models.function import FunctionModel

from pydantic_ai_a2a import Messages, ToolCall, ToolResult, a2a

from ...agents import scripted_model
from ...app_client import message, state_of, texts
from ...serving import serving
from ..pending_calls import ApprovalAgent, answer_message, approve, pending_calls
from ..refusals import BASE_EXCEPTIONS, SECRET


class CallLog:
    """Tools and hooks write lines in the order of their calls."""

    def __init__(self) -> None:
        self.lines: list[Any] = []
        self.options: dict[str, Any] = {'on_tool_call': self.call, 'on_tool_result': self.result}

    async def call(self, call: ToolCall) -> None:
        self.lines.append(('call', call.tool_name, {**call.args}))

    async def result(self, result: ToolResult) -> None:
        end = result.result if result.error is None else type(result.error).__name__
        self.lines.append(('result', result.tool_name, {**result.args}, end))


def tool_calling_model(name: str, turns: int = 1, **args: Any) -> FunctionModel:
    """A model that calls a tool in its first turns, and then says `done`."""
    return scripted_model(*[ToolCallPart(name, args)] * turns, 'done')


def doubling(log: CallLog) -> FunctionToolset[object]:
    def double(number: int) -> int:
        log.lines.append(('runs', number))
        return number * 2

    return FunctionToolset([double])


async def test_tool_hooks_get_executed_arguments_and_original_result() -> None:
    log, changes = CallLog(), Hooks[object]()

    @changes.on.before_tool_execute
    def add_one(ctx: RunContext[Any], *, args: dict[str, Any], **_: Any) -> dict[str, Any]:
        return {'number': args['number'] + 1}

    @changes.on.after_tool_execute
    def hide(ctx: RunContext[Any], *, result: int, **_: Any) -> str:
        return 'hidden from the model'

    agent = Agent(
        tool_calling_model('my_double', number='3'), toolsets=[doubling(log).prefixed('my')], capabilities=[changes]
    )
    async with serving(agent, **log.options) as client:
        task = await client.send('hi')
    assert texts(task) == ['done']
    assert log.lines == [
        ('call', 'my_double', {'number': 4}),
        ('runs', 4),
        ('result', 'my_double', {'number': 4}, 8),
    ]


async def test_on_tool_call_gets_task_and_call_id() -> None:
    calls, task_ids = list[ToolCall](), list[str]()

    def on_tool_call(call: ToolCall) -> None:
        calls.append(call)
        task_ids.append(a2a(call.ctx).task_id)

    agent = Agent(tool_calling_model('double', number=1), toolsets=[doubling(CallLog())])
    async with serving(agent, on_tool_call=on_tool_call) as client:
        task = await client.send('hi')
    [call] = calls
    assert task_ids == [task['id']]
    assert call.tool_call_id == call.ctx.tool_call_id
    assert 'ctx' not in repr(call)  # the context has the dependencies and the whole conversation


async def test_approved_call_is_reported_once_with_edited_arguments() -> None:
    log = CallLog()
    async with serving(ApprovalAgent().agent, **log.options) as client:
        task = await client.send('delete')
        assert (state_of(task), log.lines) == ('INPUT_REQUIRED', [])
        await client.send(answer_message(task, approve(args={'path': 'z'})))
    assert log.lines == [('call', 'delete', {'path': 'z'}), ('result', 'delete', {'path': 'z'}, 'deleted z')]


async def test_denied_call_is_not_reported() -> None:
    log = CallLog()
    async with serving(ApprovalAgent().agent, **log.options) as client:
        task = await client.send('delete')
        await client.send(answer_message(task, {'id': 'c1', 'decision': 'deny'}))
    assert log.lines == []


async def test_call_with_invalid_arguments_is_not_reported() -> None:
    log = CallLog()
    async with serving(
        Agent(tool_calling_model('double', number='x'), toolsets=[doubling(log)]), **log.options
    ) as client:
        assert texts(await client.send('hi')) == ['done']
    assert log.lines == []


async def test_tool_hook_gets_error_of_each_failed_call() -> None:
    log, errors = CallLog(), iter([ModelRetry('Again.'), ApprovalRequired(), ZeroDivisionError()])

    def pay() -> None:
        raise next(errors)

    agent = Agent(tool_calling_model('pay', turns=2), tools=[pay])

    async with serving(agent, **log.options) as client:
        task = await client.send('hi')
        failed = await client.send(answer_message(task, approve(pending_calls(task)[0]['id'])))
    assert state_of(failed) == 'FAILED'
    ends = [line[-1] for line in log.lines if line[0] == 'result']
    assert ends == ['ModelRetry', 'ApprovalRequired', 'ZeroDivisionError']
    assert [line[0] for line in log.lines] == ['call', 'result'] * 3


async def test_tool_raising_system_exit_is_reported_and_fails_task() -> None:
    log = CallLog()
    agent = Agent(tool_calling_model('leave'))

    @agent.tool_plain
    def leave() -> None:
        raise SystemExit(1)

    async with serving(agent, **log.options) as client:
        assert state_of(await client.send('hi')) == 'FAILED'
    assert log.lines == [('call', 'leave', {}), ('result', 'leave', {}, 'Exited')]


async def test_canceled_call_reports_no_result() -> None:
    log, began = CallLog(), asyncio.Event()
    agent = Agent(tool_calling_model('wait'))

    @agent.tool_plain
    async def wait() -> None:
        began.set()
        await asyncio.Event().wait()

    async with serving(agent, **log.options) as client:
        task = await client.send('hi', returnImmediately=True)
        await began.wait()
        assert state_of(await client.call('CancelTask', {'id': task['id']})) == 'CANCELED'
    assert log.lines == [('call', 'wait', {})]


@pytest.mark.parametrize('error', ['Exception', *BASE_EXCEPTIONS])
@pytest.mark.parametrize('later', [False, True], ids=['function', 'async function'])
async def test_failing_tool_hook_is_logged_and_tool_runs(
    error: str, later: bool, caplog: pytest.LogCaptureFixture
) -> None:
    log = CallLog()

    def raise_it(_: object) -> None:
        raise BASE_EXCEPTIONS[error]() if error in BASE_EXCEPTIONS else ZeroDivisionError(SECRET)

    async def raise_later(_: object) -> None:
        raise_it(_)

    fail = raise_later if later else raise_it

    agent = Agent(tool_calling_model('double', number=1), toolsets=[doubling(log)])
    with caplog.at_level(logging.ERROR, 'pydantic_ai_a2a'):
        async with serving(agent, on_tool_call=fail, on_tool_result=fail) as client:
            task = await client.send('hi')
    assert (texts(task), log.lines) == (['done'], [('runs', 1)])
    assert [line.split(' of task')[0] for line in caplog.messages] == [
        'The hook on_tool_call',
        'The hook on_tool_result',
    ]
    assert SECRET not in str(task)


async def test_output_tool_is_not_reported_as_tool_call() -> None:
    class Weather(BaseModel):
        sunny: bool

    log = CallLog()
    agent = Agent(tool_calling_model('final_result', sunny=True), output_type=Weather)
    async with serving(agent, **log.options) as client:
        assert state_of(await client.send('hi')) == 'COMPLETED'
    assert log.lines == []


async def test_tool_hooks_are_called_for_direct_replies() -> None:
    log = CallLog()
    agent = Agent(tool_calling_model('double', number=1), toolsets=[doubling(log)])
    async with serving(agent, messages=Messages(reply='message'), **log.options) as client:
        await client.call('SendMessage', {'message': message('hi')})
    assert log.lines[0] == ('call', 'double', {'number': 1})
