"""Capabilities that summarise old messages: a summary lasts, and no message of a client or an agent is lost by it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fasta2a.broker import InMemoryBroker
from fasta2a.schema import Message
from fasta2a.storage import InMemoryStorage
from pydantic_ai import Agent, RunContext
from pydantic_ai.capabilities import Hooks, ProcessHistory
from pydantic_ai.conversation_store import ConversationRecord
from pydantic_ai.messages import (
    CompactionPart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import AgentWorker, Messages, Workers

from ...agents import scripted_model
from ...app_client import LIMIT, Client, lifespan, message, state_of, texts
from ...cases import each_case
from ...dialects import in_no_version
from ...docs.blocks import ROOT, blocks
from ...serving import serving, wait_until_ended
from ..durable_handover import serving_until_handover
from ..pending_calls import answer_message, approve

pytestmark = in_no_version('what the model reads is below what versions differ in')


def texts_of_messages(messages: list[ModelMessage]) -> list[str]:
    """All prompts, summaries and results of tools."""
    parts = [part for each in messages for part in each.parts]
    return [str(part.content) for part in parts if isinstance(part, UserPromptPart | CompactionPart | ToolReturnPart)]


def echo_or_call_tool(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    """A model that calls a tool with the name of the prompt, or answers with all that it was told."""
    said = texts_of_messages(messages)
    if said[-1] in ('delete', 'look'):
        return ModelResponse(parts=[ToolCallPart(said[-1], {}, f'call {said[-1]}')])
    return ModelResponse(parts=[TextPart(' + '.join(said))])


class Summarizer:
    """Replaces all messages but the last `keep` by a summary, once there are more than `limit`."""

    def __init__(self, limit: int = 10, keep: int = 2, kind: str = 'request') -> None:
        self.limit = limit
        self.keep = keep
        self.kind = kind
        self.made = 0
        self.read = 0

    def __call__(self, messages: list[ModelMessage]) -> list[ModelMessage]:
        if len(messages) <= self.limit:
            return messages
        self.made += 1
        self.read += len(messages)
        summary, kept = f'summary {self.made}', messages[-self.keep :]
        if self.kind == 'response':
            return [ModelResponse(parts=[CompactionPart(summary, provider_name='function')]), *kept]
        if self.kind == 'prompt':
            [prompt] = kept
            return [ModelRequest(parts=[CompactionPart(summary), *prompt.parts])]  # type: ignore[list-item]
        return [ModelRequest(parts=[CompactionPart(summary)]), *kept]

    async def hook(self, ctx: RunContext[Any], request_context: Any) -> Any:
        """Do the same as a hook of Pydantic AI."""
        request_context.messages = self(request_context.messages)
        ctx.messages[:] = request_context.messages
        return request_context


def agent_of(summaries: Summarizer) -> Agent[Any, Any]:
    agent: Agent[Any, Any] = Agent(
        FunctionModel(echo_or_call_tool), name='agent', capabilities=[ProcessHistory(summaries)]
    )

    @agent.tool_plain(requires_approval=True)
    def delete() -> str:
        return 'deleted'

    return agent


@pytest.fixture(params=['memory', 'sqlite', 'postgres'])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == 'postgres':
        return request.getfixturevalue('postgres_tables_url')
    return 'memory' if request.param == 'memory' else f'sqlite:///{tmp_path}/agent.db'


async def send_to_context(client: Client, text: str, **fields: Any) -> dict[str, Any]:
    return await client.send(message(text, contextId='c', **fields))


async def record_of(client: Client, context: str = 'c') -> ConversationRecord:
    record = await client.a2a_app.conversations().read_record(context)
    assert record is not None
    return record


async def stored_texts(client: Client, head: str | None) -> list[str]:
    return texts_of_messages([entry.message for entry in await client.a2a_app.conversations().read_history(head)])


async def test_summary_is_stored_and_reused_by_later_turns(backend: str) -> None:
    summaries = Summarizer()
    async with serving(agent_of(summaries), backend=backend) as client:
        tasks = [await send_to_context(client, f'{n}') for n in range(30)]
        assert (summaries.made, summaries.read) == (7, 77)
        assert [texts(tasks[n]) for n in (4, 5, 6, 29)] == [
            ['0 + 1 + 2 + 3 + 4'],
            ['summary 1 + 5'],
            ['summary 1 + 5 + 6'],
            ['summary 7 + 29'],
        ]
        assert [await client.get_task(task['id']) for task in tasks] == tasks
        record = await record_of(client)
        assert record.usage.requests == 30
        branches = [await stored_texts(client, tip) for tip in record.branches]
        assert [branch[:1] for branch in branches] == [['0'], *([f'summary {n}'] for n in range(1, 7))]
        assert [text for branch in branches for text in branch if 'summary' not in text] == [f'{n}' for n in range(29)]


@each_case('part, made, read', [('CompactionPart', 7, 56), ('UserPromptPart', 25, 800)])
async def test_docs_example_reuses_only_compaction_part_summaries(part: str, made: int, read: int) -> None:
    page: dict[str, Any] = {}
    [example] = [block for block in blocks(ROOT / 'docs' / 'conversations.md') if block.title == 'brief.py']
    source = example.text.replace('openai:gpt-5.2', 'test').replace('CompactionPart(', f'{part}(')
    exec(compile(source, 'brief.py', 'exec', dont_inherit=True), page)
    lengths: list[int] = []

    def summary(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        lengths.append(len(messages) - 1)  # the last one asks for the summary
        return ModelResponse(parts=[TextPart(f'summary {len(lengths)}')])

    with page['summarizer'].override(model=FunctionModel(summary)):
        async with lifespan(page['app']), asyncio.timeout(LIMIT):
            for n in range(30):
                await send_to_context(Client(page['app']), f'{n}')
    assert (len(lengths), sum(lengths)) == (made, read)


async def test_erasing_context_erases_messages_before_summary(backend: str) -> None:
    async with serving(agent_of(Summarizer(3)), backend=backend) as client:
        for n in range(5):
            await send_to_context(client, f'{n}')
        record = await record_of(client)
        assert len(record.branches) == 3
        assert await client.a2a_app.erase_context('c')
        for tip in (record.head_id, *record.branches):
            with pytest.raises(LookupError):
                await stored_texts(client, tip)


async def test_fork_keeps_messages_replaced_by_summary(backend: str) -> None:
    async with serving(agent_of(Summarizer(3)), backend=backend) as client:
        await send_to_context(client, 'one')
        conversations = client.a2a_app.conversations()
        await conversations.fork('c', new_conversation_id='f')
        await send_to_context(client, 'two')
        assert texts(await send_to_context(client, 'three')) == ['summary 1 + three']
        assert texts(await client.send(message('other', contextId='f'))) == ['one + other']
        branch = (await record_of(client)).branches[0]
        await conversations.fork('c', from_entry=branch, new_conversation_id='g')
        await conversations.delete('c')
        assert await stored_texts(client, (await record_of(client, 'f')).head_id) == ['one', 'other']
        assert await stored_texts(client, (await record_of(client, 'g')).head_id) == ['one', 'two']


@each_case(
    'kind, keep, last', [('request', 2, 'summary 7 + 29'), ('response', 1, 'summary 5 + 25 + 26 + 27 + 28 + 29')]
)
async def test_summary_written_by_hook_persists_in_request_or_response(kind: str, keep: int, last: str) -> None:
    summaries = Summarizer(keep=keep, kind=kind)
    agent = Agent(FunctionModel(echo_or_call_tool), capabilities=[Hooks(before_model_request=summaries.hook)])
    async with serving(agent) as client:
        *_, task = [await send_to_context(client, f'{n}') for n in range(30)]
    assert texts(task) == [last]
    assert summaries.made == int(last.split()[1])


async def test_summary_in_prompt_request_persists() -> None:
    summaries = Summarizer(3, keep=1, kind='prompt')
    async with serving(agent_of(summaries)) as client:
        tasks = [await send_to_context(client, f'{n}') for n in range(5)]
    assert [texts(task) for task in tasks[1:]] == [
        ['0 + 1'],
        ['summary 1 + 2'],
        ['summary 1 + 2 + 3'],
        ['summary 2 + 4'],
    ]


async def test_messages_kept_before_summary_stay_in_history() -> None:
    def after_the_first_turn(messages: list[ModelMessage]) -> list[ModelMessage]:
        return [*messages[:2], *summaries(messages[2:])]

    summaries = Summarizer(4)
    agent = Agent(FunctionModel(echo_or_call_tool), capabilities=[ProcessHistory(after_the_first_turn)])
    async with serving(agent) as client:
        *_, task = [await send_to_context(client, f'{n}') for n in range(8)]
    assert texts(task) == ['0 + summary 5 + 7']
    assert summaries.made == 5


async def test_provider_compaction_in_response_replaces_no_messages() -> None:
    async with serving(
        Agent(scripted_model([CompactionPart('theirs', provider_name='function'), TextPart('done')]))
    ) as client:
        for n in range(2):
            await send_to_context(client, f'{n}')
        record = await record_of(client)
        assert (await stored_texts(client, record.head_id), record.branches) == (['0', 'theirs', '1', 'theirs'], [])


async def test_summary_made_during_run_keeps_tool_results_of_run(backend: str) -> None:
    agent = agent_of(summaries := Summarizer(3))

    @agent.tool_plain
    def look() -> str:
        return 'looked'

    async with serving(agent, backend=backend) as client:
        await send_to_context(client, 'hello')
        task = await send_to_context(client, 'look')
        assert texts(task) == ['summary 1 + looked']
        assert texts(await send_to_context(client, 'bye')) == ['summary 2 + bye']
        assert summaries.made == 2


async def test_summarized_task_can_still_be_referenced() -> None:
    async with serving(agent_of(Summarizer(3))) as client:
        first, *_ = [await send_to_context(client, f'{n}') for n in range(3)]
        task = await client.send(message('last', contextId='c', referenceTaskIds=[first['id']]))
        assert state_of(task) == 'COMPLETED'
        assert (await client.get_task(first['id']))['history'] == first['history']


async def test_summary_of_resumed_task_keeps_turns_added_meanwhile(backend: str) -> None:
    async with serving(agent_of(Summarizer(5)), backend=backend) as client:
        for n in range(2):
            await send_to_context(client, f'{n}')
        waiting = await send_to_context(client, 'delete')
        assert state_of(waiting) == 'INPUT_REQUIRED'
        assert texts(await send_to_context(client, 'meanwhile')) == ['0 + 1 + meanwhile']
        done = await client.send(answer_message(waiting, approve('call delete')))
        assert texts(done) == ['summary 1 + deleted']
        # The summary of the waiting task has not replaced the context, which has another turn since.
        assert await stored_texts(client, (await record_of(client)).head_id) == [
            '0',
            '1',
            'meanwhile',
            'delete',
            'deleted',
        ]
        assert texts(await send_to_context(client, 'bye')) == ['summary 2 + bye']


async def test_task_paused_after_summary_completes_after_approval(backend: str) -> None:
    async with serving(agent_of(summaries := Summarizer(3)), backend=backend) as client:
        for n in range(2):
            await send_to_context(client, f'{n}')
        waiting = await send_to_context(client, 'delete')
        assert (state_of(waiting), summaries.made) == ('INPUT_REQUIRED', 1)
        done = await client.send(answer_message(waiting, approve('call delete')))
        assert texts(done) == ['summary 2 + deleted']
        record = await record_of(client)
        assert await stored_texts(client, record.head_id) == ['summary 2', 'deleted']
        assert [await stored_texts(client, tip) for tip in record.branches] == [['0', '1']]


async def test_summary_of_failed_or_canceled_run_replaces_no_messages() -> None:
    asked = asyncio.Event()

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if texts_of_messages(messages)[-1] == 'fail':
            raise ValueError
        if texts_of_messages(messages)[-1] == 'wait':
            asked.set()
            await asyncio.Event().wait()
        return echo_or_call_tool(messages, info)

    agent = Agent(FunctionModel(answer), capabilities=[ProcessHistory(Summarizer(3))])
    async with serving(agent) as client:
        for n in range(2):
            await send_to_context(client, f'{n}')
        assert state_of(await send_to_context(client, 'fail')) == 'FAILED'
        task = await client.send(message('wait', contextId='c'), returnImmediately=True)
        await asked.wait()
        await client.call('CancelTask', {'id': task['id']})
        record = await record_of(client)
        assert (await stored_texts(client, record.head_id), record.branches) == (['0', '1', 'wait'], [])


async def test_run_resumed_after_restart_keeps_messages_before_summary(tmp_path: Path) -> None:
    summaries, looking, look_on = Summarizer(3), asyncio.Event(), asyncio.Event()
    agent = agent_of(summaries)

    @agent.tool_plain
    async def look() -> str:
        looking.set()
        await look_on.wait()
        return 'looked'

    backend = f'sqlite:///{tmp_path}/agent.db'
    async with serving_until_handover(agent, backend=backend) as client:
        for n in range(2):
            await send_to_context(client, f'{n}')
        task = await client.send(message('look', contextId='c'), returnImmediately=True)
        await looking.wait()
    look_on.set()
    async with serving_until_handover(agent, backend=backend) as client:
        assert texts(await wait_until_ended(client, task['id'])) == ['summary 2 + looked']
        record = await record_of(client)
        assert [await stored_texts(client, tip) for tip in record.branches] == [['0', '1']]
        assert texts(await send_to_context(client, 'bye')) == ['summary 3 + bye']


async def test_summary_persists_in_direct_replies(backend: str) -> None:
    summaries = Summarizer()
    async with serving(agent_of(summaries), backend=backend, messages=Messages(reply='message')) as client:
        messages = [message(f'{n}', contextId='c') for n in range(30)]
        *_, answer = [await client.call('SendMessage', {'message': each}) for each in messages]
        assert answer['message']['parts'][0]['text'] == 'summary 7 + 29'
        assert (summaries.made, summaries.read) == (7, 77)
        assert len((await record_of(client)).branches) == 7


class WorkerWithRunTask(AgentWorker):
    """Runs tasks as every `AgentWorker` does."""

    async def run_task(self, params: Any) -> None:
        await super().run_task(params)


class WorkerWithHistory(AgentWorker):
    """Reads the messages of a task as every `AgentWorker` does."""

    def build_message_history(self, history: list[Message]) -> list[ModelMessage]:
        return super().build_message_history(history)


def own_storage(agent: Agent[Any, Any]) -> dict[str, Any]:
    return {'storage': InMemoryStorage()}


def own_worker(worker: type[AgentWorker]) -> Callable[[Agent[Any, Any]], dict[str, Any]]:
    def options(agent: Agent[Any, Any]) -> dict[str, Any]:
        made = worker(agent=agent, broker=InMemoryBroker(), storage=InMemoryStorage[Any]())
        return {'workers': Workers(worker=made)}

    return options


@each_case(
    'options, made',
    [
        pytest.param(own_storage, 7, id='storage'),
        pytest.param(own_worker(WorkerWithRunTask), 7, id='worker'),
        pytest.param(own_worker(WorkerWithHistory), 25, id='worker that reads the messages itself'),
    ],
)
async def test_summary_persists_in_fasta2a_storage(
    options: Callable[[Agent[Any, Any]], dict[str, Any]], made: int
) -> None:
    agent = agent_of(summaries := Summarizer())
    async with serving(agent, **options(agent)) as client:
        *_, task = [await send_to_context(client, f'{n}') for n in range(30)]
    assert (texts(task), summaries.made) == ([f'summary {made} + 29'], made)
