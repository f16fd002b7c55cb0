"""Runs that wait for somebody, and what the answers do."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import BaseModel
from pydantic_ai import DeferredToolRequests, RunContext
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred
from pydantic_ai.tools import Tool
from pydantic_ai.toolsets import FunctionToolset

from pydantic_ai_a2a import AuthRequired, TaskPause

from ....agents import scripted_model
from ....app_client import message
from ...pending_calls import (
    WITH_CLIENT_TOOLS,
    ApprovalAgent,
    answer_message,
    approve,
    call_named_tools,
    client_tool,
    message_with_tools,
    pending_calls,
    result_answer,
)
from . import ScenarioRun, add_table, call, echo, scenario


class Payment(BaseModel):
    cents: int
    to: str = 'ann'


DENIED = {'decision': 'deny', 'reason': 'No.'}
ANSWERS: dict[str, tuple[str, list[list[dict[str, Any]]]]] = {
    # What is sent, and the answers of each round, by the ids of the calls.
    'with an approval': ('delete', [[approve()]]),
    'with a denial': ('delete', [[{'id': 'c1', **DENIED}]]),
    'with other arguments': ('delete', [[approve(args={'path': 'b'})]]),
    'with an approval and a denial': ('delete two', [[approve('c2'), {'id': 'c1', **DENIED}]]),
    'beside one that has run': ('delete and look', [[approve('c2')]]),
    'with words to its question': ('ask', [[{'id': 'q1', 'decision': 'result', 'result': 'big'}]]),
    'with its result': ('fetch', [[{'id': 'x1', 'decision': 'result', 'result': {'n': [1, None]}}]]),
    'with another try': ('fetch', [[{'id': 'x1', 'decision': 'retry', 'reason': 'Another one.'}]]),
    'among calls of all kinds': (
        'mixed',
        [
            [
                {'id': 'x1', 'decision': 'result', 'result': 'page'},
                approve('c1'),
                {'id': 'q1', 'decision': 'result', 'result': 'big'},
                {'id': 'c2', **DENIED},
            ]
        ],
    ),
}


async def answer_calls(play: ScenarioRun, case: tuple[str, list[list[dict[str, Any]]]]) -> None:
    sent, rounds = case
    tools = ApprovalAgent()
    delete = Tool(tools.delete, requires_approval=True)
    async with play.serving(
        play.agent(tools.agent.model, tools=[delete, tools.look, tools.ask, tools.fetch])
    ) as client:
        task = await client.send(sent)
        for items in rounds:
            ids = {each['toolCallId']: each['id'] for each in pending_calls(task)}
            task = await client.send(answer_message(task, *({**item, 'id': ids[item['id']]} for item in items)))
    play.note('deleted', tools.deleted)


add_table('a call is answered', ANSWERS, answer_calls)


def pay(ctx: RunContext[Any], payment: Payment) -> str:
    if payment.cents > 5 and not ctx.tool_call_approved:
        raise ApprovalRequired({'limit': 5})
    return f'paid {payment!r}'


@scenario
async def several_pauses_in_a_row_are_answered(play: ScenarioRun) -> None:
    model = scripted_model(*(call('pay', f'c{n}', payment={'cents': 10 + n}) for n in range(3)), echo)
    async with play.serving(play.agent(model, tools=[pay])) as client:
        task = await client.send('hello')
        for _ in range(3):
            task = await client.send(answer_message(task, approve(pending_calls(task)[0]['id'])))


@scenario
async def a_hook_of_the_app_is_called_for_each_pause(play: ScenarioRun) -> None:
    pauses = asyncio.Queue[TaskPause]()
    model = scripted_model(*(call('pay', f'c{n}', payment={'cents': 10 + n}) for n in range(2)), echo)
    async with play.serving(play.agent(model, tools=[pay]), on_waiting=pauses.put) as client:
        task = await client.send('hello')
        for _ in range(2):
            pause = await pauses.get()
            calls = [(waiting.kind, waiting.tool, waiting.args) for waiting in pause.calls]
            play.note('on_waiting', (pause.number, pause.state, pause.question, calls))
            task = await client.send(answer_message(task, approve(pending_calls(task)[0]['id'])))


@scenario
async def a_tool_asks_for_approval_only_where_it_must(play: ScenarioRun) -> None:
    calls = [call('pay', 'c1', payment={'cents': 1}), call('pay', 'c2', payment={'cents': 9})]
    async with play.serving(play.agent(scripted_model(calls, echo), tools=[pay])) as client:
        task = await client.send('hello')
        edited = approve(pending_calls(task)[0]['id'], args={'cents': 7, 'to': 'bob'})
        await client.send(answer_message(task, edited))


@scenario
async def an_answer_in_words_denies_a_call(play: ScenarioRun) -> None:
    async with play.serving(play.agent(scripted_model(call('pay', payment={'cents': 9}), echo), tools=[pay])) as client:
        task = await client.send('hello')
        await client.send(message('Rather not.', taskId=task['id']))


@scenario
async def an_agent_declares_that_it_defers_calls(play: ScenarioRun) -> None:
    async def fetch(url: str) -> str:
        raise CallDeferred({'by': 'courier'})

    agent = play.agent(
        scripted_model(call('fetch', url='u'), echo), tools=[fetch], output_type=[str, DeferredToolRequests]
    )
    async with play.serving(agent) as client:
        task = await client.send('hello')
        await client.send(
            answer_message(task, {'id': pending_calls(task)[0]['id'], 'decision': 'result', 'result': 'page'})
        )


@scenario
async def a_whole_toolset_needs_approval(play: ScenarioRun) -> None:
    toolset = FunctionToolset[Any](id='own')

    @toolset.tool_plain
    def work(n: int) -> int:
        return n

    agent = play.agent(scripted_model(call('work', n=1), echo), toolsets=[toolset.approval_required()])
    async with play.serving(agent) as client:
        task = await client.send('hello')
        await client.send(answer_message(task, approve(pending_calls(task)[0]['id'])))


@scenario
async def a_tool_has_its_client_sign_in(play: ScenarioRun) -> None:
    async def read(ctx: RunContext[Any]) -> str:
        if not ctx.tool_call_approved:
            raise AuthRequired('Sign in.', url='https://example.com')
        return 'mail'

    async with play.serving(play.agent(scripted_model(call('read'), echo), tools=[read])) as client:
        task = await client.send('hello')
        await client.send(message('Done.', taskId=task['id']))


@scenario
async def a_waiting_task_is_cancelled(play: ScenarioRun) -> None:
    async with play.serving(play.agent(scripted_model(call('pay', payment={'cents': 9}), echo), tools=[pay])) as client:
        task = await client.send('hello')
        await client.call('CancelTask', {'id': task['id']})
        await client.send(message('and now?', contextId=task['contextId']))


@scenario
async def a_client_answers_calls_of_its_own_tools(play: ScenarioRun) -> None:
    from pydantic_ai.models.function import FunctionModel

    def look(q: str) -> str:
        return f'seen {q}'

    agent = play.agent(FunctionModel(call_named_tools), tools=[look])
    async with play.serving(agent, messages=WITH_CLIENT_TOOLS) as client:
        task = await client.send(message_with_tools('search:cats look:dogs', client_tool(), client_tool('fetch')))
        await client.send(answer_message(task, result_answer(pending_calls(task)[0], {'found': 3})))
