"""Artifacts of a task with several turns: each accepted prompt gets an artifact of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from fasta2a.storage import InMemoryStorage
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from ...agents import user_prompts
from ...app_client import Client, Event, message, state_of, texts
from ...serving import serving, wait_until_ended
from ..pending_calls import answer_message, approve

Deltas = AsyncIterator[str | dict[int, DeltaToolCall]]
Storage = InMemoryStorage[list[ModelMessage]]


class Writer:
    """An agent that streams `<prompt>: `, waits for the gate of the prompt, and then streams `done`, fails or asks."""

    def __init__(self) -> None:
        self.agent: Agent[object, str] = Agent(FunctionModel(self._answer, stream_function=self._stream), name='agent')
        self.agent.tool_plain(requires_approval=True)(self.delete)
        self.begun = {prompt: asyncio.Event() for prompt in ('one', 'two', 'three', 'fail', 'delete')}
        self.gates = {prompt: asyncio.Event() for prompt in self.begun}

    def delete(self) -> str:
        """Delete everything."""
        return 'deleted'

    async def _answer(self, messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        """Answer without a stream: the prompt `delete` has been answered by then."""
        return ModelResponse(parts=[TextPart(f'{user_prompts(messages)[-1]}: done')])

    async def _stream(self, messages: list[ModelMessage], _: AgentInfo) -> Deltas:
        prompt = user_prompts(messages)[-1]
        asks = prompt == 'delete' and not any(isinstance(each, ModelResponse) and each.tool_calls for each in messages)
        yield f'{prompt}: '
        self.begun[prompt].set()
        await self.gates[prompt].wait()
        if prompt == 'fail':
            raise ZeroDivisionError
        if asks:
            yield {1: DeltaToolCall(name='delete', json_args='{}', tool_call_id='c1')}
        else:
            yield 'done'


@pytest.fixture(params=[False, True], ids=['ours', 'FastA2A'])
def storage(request: pytest.FixtureRequest) -> Storage | None:
    """A storage of the user's own, or none."""
    return Storage() if request.param else None


def artifact_texts(task: dict[str, Any]) -> dict[str, list[str]]:
    """The texts of a task's artifacts, by the number in their ids."""
    found: dict[str, list[str]] = {}
    for artifact in task['artifacts']:
        task_id, turn, name = artifact['artifactId'].rsplit('.', 2)
        assert (task_id, name) == (task['id'], 'result')
        assert turn not in found
        found[turn] = [part['text'] for part in artifact['parts']]
    return found


def streamed_texts(events: list[Event]) -> dict[str, str]:
    """The texts of the artifacts as a client puts them together from a stream, by the number in their ids."""
    found: dict[str, str] = {}
    for update in (event.result['artifactUpdate'] for event in events if 'artifactUpdate' in event.result):
        turn = update['artifact']['artifactId'].split('.')[1]
        before = found.get(turn, '') if update.get('append') else ''
        found[turn] = before + ''.join(part['text'] for part in update['artifact']['parts'])
    return found


async def send_more(client: Client, task: dict[str, Any], text: str) -> None:
    await client.send(message(text, taskId=task['id'], contextId=task['contextId']), returnImmediately=True)


async def test_each_message_to_working_task_gets_own_artifact(storage: Storage | None) -> None:
    writer = Writer()
    async with serving(writer.agent, storage=storage) as client, client.live.send_streaming('one') as stream:
        first = [await anext(stream)]
        task = first[0].result['task']
        await writer.begun['one'].wait()
        await send_more(client, task, 'two')
        writer.gates['one'].set()
        await writer.begun['two'].wait()
        while '2' not in streamed_texts(first):
            first.append(await anext(stream))
        halfway = artifact_texts(await client.get_task(task['id']))
        writer.gates['two'].set()
        events = [*first, *await stream.rest()]
        done = await client.get_task(task['id'])
    assert halfway == {'1': ['one: done'], '2': ['two: ']}
    assert artifact_texts(done) == {'1': ['one: done'], '2': ['two: done']}
    assert streamed_texts(events) == {'1': 'one: done', '2': 'two: done'}


async def test_failed_turn_keeps_partial_artifact_beside_other_turns(
    storage: Storage | None,
) -> None:
    writer = Writer()
    async with serving(writer.agent, storage=storage) as client, client.live.send_streaming('one') as stream:
        task = (await anext(stream)).result['task']
        for text in ('fail', 'three'):
            await send_more(client, task, text)
        for gate in writer.gates.values():
            gate.set()
        await stream.rest()
        done = await client.get_task(task['id'])
        if storage is not None:
            kept = await storage.load_task(task['id'])
            assert kept is not None
            assert len(kept.get('artifacts', ())) == 3
    assert state_of(done) == 'COMPLETED'
    assert artifact_texts(done) == {'1': ['one: done'], '2': ['fail: '], '3': ['three: done']}


async def test_canceled_turn_keeps_partial_artifact_and_earlier_results(
    storage: Storage | None,
) -> None:
    writer = Writer()
    async with serving(writer.agent, storage=storage) as client, client.live.send_streaming('one') as stream:
        task = (await anext(stream)).result['task']
        await send_more(client, task, 'two')
        writer.gates['one'].set()
        await writer.begun['two'].wait()
        await client.call('CancelTask', {'id': task['id']})
        await stream.rest()
        done = await client.get_task(task['id'])
        if storage is not None:
            kept = await storage.load_task(task['id'])
            assert kept is not None
            assert len(kept.get('artifacts', ())) == 2
    assert state_of(done) == 'CANCELED'
    assert artifact_texts(done) == {'1': ['one: done'], '2': ['two: ']}


async def test_turn_keeps_artifact_id_across_approval() -> None:
    writer = Writer()
    writer.gates['delete'].set()
    async with serving(writer.agent) as client:
        async with client.live.send_streaming('one') as stream:
            task = (await anext(stream)).result['task']
            await send_more(client, task, 'delete')
            writer.gates['one'].set()
            before = await stream.rest()
        waiting = await client.get_task(task['id'])
        assert state_of(waiting) == 'INPUT_REQUIRED'
        done = await client.send(answer_message(waiting, approve()))
    assert streamed_texts(before) == {'1': 'one: done', '2': 'delete: '}
    assert artifact_texts(done) == {'1': ['one: done'], '2': ['delete: done']}


async def test_turn_keeps_artifact_id_in_another_process(tmp_path: Path) -> None:
    writer, url = Writer(), f'sqlite:///{tmp_path / "tasks.db"}'
    async with (
        serving(writer.agent, backend=url, drain_grace=0.01) as client,
        client.live.send_streaming('one') as stream,
    ):
        task = (await anext(stream)).result['task']
        await send_more(client, task, 'two')
        writer.gates['one'].set()
        await writer.begun['two'].wait()
    writer.gates['two'].set()
    async with serving(writer.agent, backend=url) as client:
        done = await wait_until_ended(client, task['id'])
    assert artifact_texts(done) == {'1': ['one: done'], '2': ['two: done']}
    assert texts(done) == ['one: done', 'two: done']
