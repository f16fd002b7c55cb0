"""Tools get and give the same, and the model hears the same of them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel
from pydantic_ai import Agent, BinaryContent, ImageUrl, ModelRetry, RunContext, ToolReturn
from pydantic_ai.tools import Tool, ToolDefinition
from pydantic_ai.toolsets import DynamicToolset, FunctionToolset

from pydantic_ai_a2a import InputRequired, Rejected, a2a

from ....agents import scripted_model
from ....app_client import message
from . import ScenarioRun, add_table, call, echo, name_tools, scenario


class City(BaseModel):
    name: str
    since: date


@dataclass
class Point:
    x: int
    label: str | None = None


IMAGE = BinaryContent(b'\xff\x00', media_type='image/png')
RESULTS: dict[str, Any] = {
    'nothing': None,
    'a text': 'Grüße, 世界 🌍',
    'a model': City(name='Rome', since=date(2026, 11, 28)),
    'a dataclass': Point(1),
    'a list of models': [City(name='Rome', since=date(2026, 11, 28)), Point(2, 'b')],
    'a decimal': {'sum': Decimal('1.10')},
    'bytes': b'\x00\xffabc',
    'a tuple and a set': ((1, 2), {3}),
    'a dictionary with numbers for names': {1: 'one'},
    'NaN': float('nan'),
    'infinity': {'most': float('inf')},
    'an image': IMAGE,
    'an image by its address': ImageUrl('https://example.com/a.png'),
    'a list with an image': ['See:', IMAGE],
    'a result with content for the model': ToolReturn('drawn', content=['See:', IMAGE], metadata={'cents': 5}),
    'a result with metadata of a class': ToolReturn({'n': 1}, metadata={'at': date(2026, 11, 28)}),
}


async def return_result(play: ScenarioRun, result: Any) -> None:
    def work() -> Any:
        return result

    async with play.serving(play.agent(scripted_model(call('work'), echo), tools=[work])) as client:
        task = await client.send('hello')
        await client.send(message('go on', contextId=task['contextId']))


add_table('a tool returns', RESULTS, return_result)


@scenario
async def a_tool_returns_a_large_text(play: ScenarioRun) -> None:
    await return_result(play, 'x' * 2_600_000)


@scenario
async def half_of_an_emoji(play: ScenarioRun) -> None:
    def work() -> str:
        return 'ab\ud83d'

    async with play.serving(play.agent(scripted_model(call('work'), 'cd\ud83d'), tools=[work])) as client:
        await client.send('hello')


@scenario
async def tools_get_their_arguments_as_they_are_declared(play: ScenarioRun) -> None:
    def work(
        city: City, points: list[Point], cents: Decimal, day: date | str, rest: dict[str, int] | None = None
    ) -> str:
        return repr((city, points, cents, day, rest))

    arguments = {'city': {'name': 'Rome', 'since': '2026-11-28'}, 'points': [{'x': 1}], 'cents': '1.10'}
    model = scripted_model(
        call('work', 'c1', **arguments, day='2026-11-28'), call('work', 'c2', **arguments, day='today'), echo
    )
    async with play.serving(play.agent(model, tools=[work])) as client:
        await client.send('hello')


@scenario
async def tools_with_wrong_arguments_are_called_again(play: ScenarioRun) -> None:
    def work(n: int) -> int:
        return n

    async with play.serving(
        play.agent(scripted_model(call('work', n='many'), call('work', n=2), echo), tools=[work])
    ) as client:
        await client.send('hello')


@scenario
async def an_unknown_tool_is_told_to_the_model(play: ScenarioRun) -> None:
    async with play.serving(play.agent(scripted_model(call('work'), echo), tools=[])) as client:
        await client.send('hello')


@scenario
async def a_tool_asks_the_model_to_retry(play: ScenarioRun) -> None:
    def work(ctx: RunContext[Any], n: int) -> int:
        if n < 2:
            raise ModelRetry(f'More than {n}, after {ctx.retry} of {ctx.max_retries} retries.')
        return n

    model = scripted_model(call('work', n=1), call('work', n=2), echo)
    async with play.serving(play.agent(model, tools=[work])) as client:
        await client.send('hello')


@scenario
async def a_tool_asks_for_more_retries_than_it_has(play: ScenarioRun) -> None:
    def work() -> None:
        raise ModelRetry('Again.')

    async with play.serving(play.agent(scripted_model(call('work')), tools=[Tool(work, max_retries=2)])) as client:
        await client.send('hello')


@scenario
async def a_tool_takes_too_long_for_its_timeout(play: ScenarioRun) -> None:
    async def work() -> None:
        await asyncio.Event().wait()

    async with play.serving(play.agent(scripted_model(call('work'), echo), tools=[Tool(work, timeout=0.05)])) as client:
        await client.send('hello')


async def run_two_tools(play: ScenarioRun, sequential: bool) -> None:
    second = asyncio.Event()

    async def one() -> str:
        if not sequential:
            await second.wait()
        play.note('order', 'one')
        return 'first'

    async def two() -> str:
        play.note('order', 'two')
        second.set()
        return 'second'

    tools = [Tool(one, sequential=sequential), Tool(two, sequential=sequential)]
    async with play.serving(play.agent(scripted_model([call('one'), call('two')], echo), tools=tools)) as client:
        await client.send('hello')


@scenario
async def tools_run_in_parallel(play: ScenarioRun) -> None:
    await run_two_tools(play, sequential=False)


@scenario
async def tools_run_one_after_another(play: ScenarioRun) -> None:
    await run_two_tools(play, sequential=True)


@scenario
async def a_validator_changes_an_argument(play: ScenarioRun) -> None:
    async def work(cents: Annotated[int, AfterValidator(lambda cents: cents * 100)]) -> int:
        return cents

    async with play.serving(play.agent(scripted_model(call('work', cents=7), echo), tools=[work])) as client:
        await client.send('hello')


@scenario
async def many_calls_of_one_tool_keep_their_order(play: ScenarioRun) -> None:
    async def work(n: int) -> int:
        await asyncio.sleep(0.001 * (5 - n))
        return n

    model = scripted_model([call('work', f'c{n}', n=n) for n in range(5)], echo)
    async with play.serving(play.agent(model, tools=[work])) as client:
        await client.send('hello')


@scenario
async def tools_know_their_call_and_their_task(play: ScenarioRun) -> None:
    async def work(ctx: RunContext[Any]) -> str:
        task = a2a(ctx)
        info = dict((ctx.metadata or {})['a2a'])
        play.note('tool', (ctx.tool_name, ctx.tool_call_id, ctx.run_step, ctx.retry, ctx.usage, ctx.tool_call_approved))
        play.note('tool', (sorted(info), task.caller.id, task.task_id == info['task_id'], bool(task.context_id)))
        play.note('tool', (info['idempotency_key'].removeprefix(task.task_id), (ctx.run_id or '').endswith('.1')))
        return 'done'

    async with play.serving(play.agent(scripted_model(call('work'), echo), tools=[work])) as client:
        await client.send(message('hello', metadata={'mine': 1}))


@scenario
async def a_tool_reads_messages(play: ScenarioRun) -> None:
    def work(ctx: RunContext[Any]) -> str:
        return f'{len(ctx.messages)} after {ctx.prompt}'

    async with play.serving(play.agent(scripted_model(call('work'), echo), tools=[work])) as client:
        await client.send('hello')


@scenario
async def tools_show_statuses_and_artifacts(play: ScenarioRun) -> None:
    async def draw(ctx: RunContext[Any]) -> None:
        await a2a(ctx).status('Drawing.')
        await a2a(ctx).artifact(IMAGE, name='map')
        await a2a(ctx).artifact({'n': 1}, name='draft', key='d')
        await a2a(ctx).artifact({'n': 2}, name='draft', key='d')
        await a2a(ctx).artifact(City(name='Rome', since=date(2026, 11, 28)), name='city')
        await a2a(ctx).status('Drawn.')

    async with play.serving(play.agent(scripted_model(call('draw'), echo), tools=[draw])) as client:
        await client.watch()


@scenario
async def a_tool_rejects_its_task(play: ScenarioRun) -> None:
    async def work() -> None:
        raise Rejected('Not today.')

    async with play.serving(play.agent(scripted_model(call('work')), tools=[work])) as client:
        task = await client.send('hello')
        await client.send(message('tomorrow?', contextId=task['contextId']))


@scenario
async def a_tool_asks_its_client(play: ScenarioRun) -> None:
    async def order(size: str) -> str:
        raise InputRequired(f'Which {size} pizza?', schema={'type': 'string', 'maxLength': 9})

    async with play.serving(play.agent(scripted_model(call('order', size='big'), echo), tools=[order])) as client:
        task = await client.send('hello')
        await client.send(message('Margherita', taskId=task['id']))


@scenario
async def tools_that_are_prepared_are_hidden_and_changed(play: ScenarioRun) -> None:
    async def hide(ctx: RunContext[Any], tool: ToolDefinition) -> ToolDefinition | None:
        return None if ctx.run_step > 1 else tool

    def work() -> str:
        """Works."""
        return 'worked'

    tools = [Tool(work, prepare=hide), Tool(work, name='other', description='Other.')]
    async with play.serving(play.agent(scripted_model(call('work'), name_tools), tools=tools)) as client:
        await client.send('hello')


@scenario
async def toolsets_are_prefixed_filtered_and_renamed(play: ScenarioRun) -> None:
    toolset = FunctionToolset[Any](id='own')
    other = FunctionToolset[Any](id='other')

    @toolset.tool_plain
    def work() -> str:
        return 'worked'

    @other.tool_plain
    def hidden() -> None: ...

    @other.tool_plain
    def old() -> str:
        return 'renamed'

    toolsets = [toolset.prefixed('p'), other.filtered(lambda _, tool: tool.name != 'hidden').renamed({'new': 'old'})]
    model = scripted_model([call('p_work'), call('new')], name_tools, echo)
    async with play.serving(play.agent(model, toolsets=toolsets)) as client:
        task = await client.send('hello')
        await client.send(message('again', contextId=task['contextId']))


@scenario
async def a_dynamic_toolset_gives_its_tools(play: ScenarioRun) -> None:
    def toolset(ctx: RunContext[Any]) -> FunctionToolset[Any]:
        made = FunctionToolset[Any](id='made')

        @made.tool_plain
        def work(n: int) -> int:
            return n * 2

        return made

    toolsets = [DynamicToolset(toolset, id='dynamic')]
    async with play.serving(play.agent(scripted_model(call('work', n=2), echo), toolsets=toolsets)) as client:
        await client.send('hello')


@scenario
async def a_tool_enqueues_a_message(play: ScenarioRun) -> None:
    def work(ctx: RunContext[Any]) -> str:
        ctx.enqueue('See this.')
        return 'worked'

    async with play.serving(play.agent(scripted_model(call('work'), echo), tools=[work])) as client:
        await client.send('hello')


@scenario
async def a_tool_runs_another_agent(play: ScenarioRun) -> None:
    other = Agent(scripted_model('I am another agent.'), name='other')

    async def work(ctx: RunContext[Any]) -> str:
        return (await other.run('hello', usage=ctx.usage)).output

    async with play.serving(play.agent(scripted_model(call('work'), echo), tools=[work])) as client:
        await client.send('hello')


@scenario
async def a_tool_has_metadata_and_a_strict_schema(play: ScenarioRun) -> None:
    def work() -> str:
        return 'worked'

    tools = [Tool(work, metadata={'price': 5}, strict=True)]
    async with play.serving(play.agent(scripted_model(call('work'), echo), tools=tools)) as client:
        await client.send('hello')
