"""What clients send, and what the app gives to a run, reaches the model, tools and hooks unchanged."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from dataclasses import dataclass, field
from datetime import date
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict
from pydantic.alias_generators import to_camel
from pydantic_ai import RunContext
from pydantic_ai.messages import ModelMessage, UserPromptPart
from pydantic_ai.models.function import AgentInfo
from pydantic_ai.run import AgentRunResult

from pydantic_ai_a2a import CallContext, Limits, Messages, a2a

from ....agents import scripted_model
from ....app_client import RpcError, message
from ....bounds import LIMIT
from ....constants import with_constants
from ....serving import wait_until_ended
from . import ScenarioRun, add_table, call, echo, scenario

PNG = {'raw': b64encode(b'\x89PNG\xff\x00').decode(), 'mediaType': 'image/png', 'filename': 'a.png'}


@scenario
async def a_conversation_goes_on(play: ScenarioRun) -> None:
    async with play.serving(play.agent(scripted_model(echo))) as client:
        context = (await client.send('Grüße, 世界 🌍'))['contextId']
        for text in ('two', 'x' * 100_000, 'four'):
            await client.send(message(text, contextId=context))


@scenario
async def messages_have_files_and_data(play: ScenarioRun) -> None:
    parts = [
        {'text': 'See:'},
        PNG,
        {'url': 'https://example.com/b.png', 'mediaType': 'image/png'},
        {'raw': b64encode(b'a,b').decode(), 'mediaType': 'text/csv'},
        {'data': {'n': [1, 2.5, None, 'x']}},
    ]

    def describe(messages: list[ModelMessage], _: AgentInfo) -> str:
        prompts = [part.content for sent in messages for part in sent.parts if isinstance(part, UserPromptPart)]
        return f'{[type(item).__name__ for content in prompts for item in content]}'

    async with play.serving(play.agent(scripted_model(describe)), messages=Messages(force_download=False)) as client:
        task = await client.send(message(parts=parts))
        await client.send(message('again', contextId=task['contextId']))


@scenario
async def a_message_refers_to_another_task(play: ScenarioRun) -> None:
    async with play.serving(play.agent(scripted_model(echo))) as client:
        first = await client.send('one')
        await client.send(message('two', referenceTaskIds=[first['id']]))


@scenario
async def a_message_is_sent_twice(play: ScenarioRun) -> None:
    sent = message('hello', messageId='m-1')
    async with play.serving(play.agent(scripted_model(echo))) as client:
        await client.send(sent)
        await client.send(sent)


class Trip(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel)
    to_city: str
    net_cents: Annotated[int, AfterValidator(lambda cents: cents * 2)] = 1
    on: date | str = 'today'


@scenario
async def input_has_a_type(play: ScenarioRun) -> None:
    def work(ctx: RunContext[Any]) -> str:
        return repr(a2a(ctx).input(Trip))

    def complete(result: AgentRunResult[Any]) -> None:
        play.note('hook', a2a(result).input(Trip))

    agent = play.agent(scripted_model(call('work'), echo), tools=[work])

    @agent.instructions
    def instruct(ctx: RunContext[Any]) -> str:
        return repr(a2a(ctx).input(Trip))

    async with play.serving(agent, messages=Messages(input_type=Trip), on_complete=complete) as client:
        await client.send(message(parts=[{'data': {'toCity': 'Rome', 'netCents': 5, 'on': '2026-11-28'}}]))
        try:
            await client.send(message(parts=[{'data': {'toCity': 5}}]))
        except RpcError as error:
            play.note('refused', (error.code, error.message))


# --- dependencies -----------------------------------------------------------------------------------------------------


@dataclass
class Shop:
    name: str
    prices: dict[str, int] = field(default_factory=dict)
    opened: date | None = None


@scenario
async def dependencies_of_the_app_reach_tools(play: ScenarioRun) -> None:
    def work(ctx: RunContext[Shop]) -> str:
        return repr(ctx.deps)

    agent = play.agent(scripted_model(call('work'), echo), deps_type=Shop, tools=[work])

    @agent.instructions
    def instruct(ctx: RunContext[Shop]) -> str:
        return ctx.deps.name

    async with play.serving(agent, deps=Shop('a', {'b': 1}, date(2026, 11, 28))) as client:
        await client.send('hello')


@scenario
async def dependencies_of_each_run_reach_tools(play: ScenarioRun) -> None:
    def work(ctx: RunContext[Shop]) -> str:
        return repr(ctx.deps)

    def deps(call: CallContext) -> Shop:
        return Shop(call.caller.id, {'c': len(call.headers)})

    agent = play.agent(scripted_model(call('work'), echo), deps_type=Shop, tools=[work])
    async with play.serving(agent, deps_factory=deps) as client:
        task = await client.send('hello')
        await client.send(message('again', contextId=task['contextId']))


@scenario
async def a_tool_changes_dependencies(play: ScenarioRun) -> None:
    def work(ctx: RunContext[Shop]) -> str:
        ctx.deps.prices['b'] = len(ctx.deps.prices)
        return repr(ctx.deps)

    def deps(call: CallContext) -> Shop:
        return Shop('a')

    agent = play.agent(scripted_model(call('work', 'c1'), call('work', 'c2'), echo), deps_type=Shop, tools=[work])
    async with play.serving(agent, deps_factory=deps) as client:
        await client.send('hello')


# --- messages to a working task ---------------------------------------------------------------------------------------


TREATMENTS = {'wait for its next run': 'queue', 'enter its run': 'steer', 'are refused': 'reject'}


async def send_while_working(play: ScenarioRun, treatment: Any) -> None:
    reached, opened = asyncio.Event(), asyncio.Event()

    async def wait() -> str:
        reached.set()
        await opened.wait()
        return 'waited'

    agent = play.agent(scripted_model(call('wait'), echo), tools=[wait])
    async with play.serving(agent, messages=Messages(while_working=treatment)) as client:
        task = await client.send('one', returnImmediately=True)
        await reached.wait()
        for text in ('two', 'three'):
            try:
                await client.send(message(text, taskId=task['id']), returnImmediately=True)
            except RpcError as error:
                play.note('refused', (error.code, error.reason))
        opened.set()
        await wait_until_ended(client, task['id'])


add_table('messages to a working task', TREATMENTS, send_while_working)


@scenario
async def a_working_task_is_cancelled(play: ScenarioRun) -> None:
    reached = asyncio.Event()

    def work() -> str:
        return 'worked'

    async def wait() -> None:
        reached.set()
        await asyncio.Event().wait()

    agent = play.agent(scripted_model(call('work'), call('wait'), echo), tools=[work, wait])
    async with play.serving(agent, limits=with_constants(Limits, cancel_grace=LIMIT)) as client:
        task = await client.send('hello', returnImmediately=True)
        await reached.wait()
        await client.call('CancelTask', {'id': task['id']})
        await client.send(message('go on', contextId=task['contextId']))


@scenario
async def a_message_is_answered_without_a_task(play: ScenarioRun) -> None:
    async with play.serving(play.agent(scripted_model(echo)), messages=Messages(reply='message')) as client:
        answer = await client.call('SendMessage', {'message': message('hello')})
        play.note('reply', answer)
        play.note('conversation', len(await client.messages_of(answer['message']['contextId'])))
