"""What a task's metadata says of its runs: their ids, model and usage, for clients that activate the extension."""

from __future__ import annotations

from typing import Any

import pytest
from fasta2a.schema import AgentExtension
from inline_snapshot import snapshot
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from pydantic_ai_a2a import InputRequired, Results, to_a2a
from pydantic_ai_a2a.wire.extensions.own_extensions import RUN_METADATA, RUN_METADATA_URI

from ...agents import GatedAgent, user_prompts
from ...app_client import Client, message, state_of
from ...dialects import current_dialect, in_no_version
from ...serving import serving, wait_until_ended
from ..promised_behaviours import covers


def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    """A model that calls a tool first, whose answer is what the user said last."""
    usage = RequestUsage(input_tokens=5, output_tokens=2)
    if len(messages) == 1 and user_prompts(messages)[-1] == 'use the tool':
        return ModelResponse(parts=[ToolCallPart('tool')], usage=usage)
    if user_prompts(messages)[-1] == 'break':
        raise ValueError
    return ModelResponse(parts=[TextPart(user_prompts(messages)[-1])], usage=usage)


AGENT = Agent(FunctionModel(answer, model_name='large'))


@AGENT.tool_plain
def tool() -> str:
    return 'used'


def active_extensions() -> dict[str, str]:
    return {current_dialect().extensions_header.replace('-', '_'): RUN_METADATA_URI}


def run_metadata_of(task: dict[str, Any]) -> dict[str, Any]:
    """What a task's metadata says of its runs, but for the task's id."""
    told = task['metadata'][RUN_METADATA_URI]
    return {**told, 'runId': told['runId'].removeprefix(task['id'])}


@covers('usage, model')
async def test_task_metadata_has_run_id_model_and_usage() -> None:
    async with serving(AGENT) as client:
        sent = (await client.call('SendMessage', {'message': message('use the tool')}, **active_extensions()))['task']
        seen = await client.get_task(sent['id'])
    assert run_metadata_of(sent) == snapshot(
        {
            'runId': '.1',
            'model': 'large',
            'usage': {
                'requests': 2,
                'toolCalls': 1,
                'inputTokens': 10,
                'outputTokens': 4,
                'cacheReadTokens': 0,
                'cacheWriteTokens': 0,
            },
        }
    )
    assert seen['metadata'] == sent['metadata']


async def test_last_status_update_carries_run_metadata() -> None:
    async with serving(AGENT) as client:
        async with client.stream('SendStreamingMessage', {'message': message('go')}, **active_extensions()) as stream:
            assert stream.headers[current_dialect().extensions_header.lower()] == RUN_METADATA_URI
            events = [event.result for event in await stream.rest()]
        task = await client.get_task(events[0]['task']['id'])
    told = [each['statusUpdate'].get('metadata') for each in events if 'statusUpdate' in each]
    assert told == [None, task['metadata']]
    assert run_metadata_of(task)['usage']['outputTokens'] == 2


@pytest.mark.parametrize('names', [None, 'https://example.com/other', f'{RUN_METADATA_URI}0'])
async def test_run_metadata_is_absent_without_extension(names: str | None) -> None:
    async with serving(AGENT) as client:
        header = {} if names is None else {current_dialect().extensions_header.replace('-', '_'): names}
        said = message('go', metadata={'about': RUN_METADATA_URI})
        sent = (await client.call('SendMessage', {'message': said}, **header))['task']
    assert (state_of(sent), 'metadata' in sent) == ('COMPLETED', False)


async def test_usage_adds_up_over_runs_of_task() -> None:
    def ask(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        text = user_prompts(messages)[-1]
        usage = RequestUsage(input_tokens=3, output_tokens=1)
        if text == 'first':
            return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, {'question': 'And?'})], usage=usage)
        return ModelResponse(parts=[TextPart(text)], usage=usage)

    async with serving(Agent(FunctionModel(ask), output_type=[str, InputRequired])) as client:
        first = (await client.call('SendMessage', {'message': message('first')}, **active_extensions()))['task']
        second = message('second', taskId=first['id'])
        task = (await client.call('SendMessage', {'message': second}, **active_extensions()))['task']
    assert (state_of(first), state_of(task)) == ('INPUT_REQUIRED', 'COMPLETED')
    assert [
        (run_metadata_of(each)['usage']['requests'], run_metadata_of(each)['usage']['inputTokens'])
        for each in (first, task)
    ] == [
        (1, 3),
        (2, 6),
    ]


async def test_usage_adds_up_over_queued_messages() -> None:
    gates = GatedAgent()
    async with serving(gates.agent) as client:
        configuration = {'returnImmediately': True}
        sent = await client.call(
            'SendMessage', {'message': message('one'), 'configuration': configuration}, **active_extensions()
        )
        await gates.reached('one')
        two = message('two', taskId=sent['task']['id'])
        await client.call('SendMessage', {'message': two, 'configuration': configuration}, **active_extensions())
        gates.open('one', 'two')
        task = await wait_until_ended(client, sent['task']['id'])
    assert (run_metadata_of(task)['runId'], run_metadata_of(task)['usage']['requests']) == ('.2', 2)


async def test_failed_task_has_run_metadata_without_model() -> None:
    async with serving(AGENT) as client:
        task = (await client.call('SendMessage', {'message': message('break')}, **active_extensions()))['task']
    assert (state_of(task), run_metadata_of(task)['runId']) == ('FAILED', '.1')
    assert 'model' not in run_metadata_of(task)


async def test_run_metadata_can_be_disabled() -> None:
    async with serving(AGENT, results=Results(run_metadata=False)) as client:
        sent = (await client.call('SendMessage', {'message': message('go')}, **active_extensions()))['task']
        card = (await client.get('/.well-known/agent-card.json')).json
    assert 'metadata' not in sent
    assert RUN_METADATA_URI not in [each['uri'] for each in card['capabilities']['extensions']]


@in_no_version('the card is the same for all')
async def test_card_declares_run_metadata_beside_user_extensions() -> None:
    own = AgentExtension(uri='https://example.com/own', required=True)
    card = (await Client(to_a2a(AGENT, extensions=[own])).get('/.well-known/agent-card.json')).json
    assert card['capabilities']['extensions'][:2] == [own, RUN_METADATA]
    assert 'required' not in RUN_METADATA
