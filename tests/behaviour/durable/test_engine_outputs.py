"""The output of a run is the same at each engine as without one: for clients, and for `on_complete`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pytest
from pydantic import (
    BaseModel,
    PlainSerializer,
    PlainValidator,
    WithJsonSchema,
    field_serializer,
    field_validator,
)
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.run import AgentRunResult
from pydantic_core import from_json, to_json
from temporalio import client, workflow
from temporalio.worker import (
    ExecuteWorkflowInput,
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)

from pydantic_ai_a2a import Artifacts
from pydantic_ai_a2a.engines import temporal_result
from pydantic_ai_a2a.server.agent.run_output import RunOutput

from ...engines import TemporalSetup
from ...serving import serving
from .contract.outputs import Cat, Doubled, Refused, Secret, answering


async def outcome_of(agent: Agent[Any, Any], options: dict[str, Any]) -> tuple[Any, ...]:
    """What a client gets, and what `on_complete` gets."""
    completed = list[AgentRunResult[Any]]()
    async with serving(agent, on_complete=completed.append, **options) as client:
        task = await client.send('hello')
    for artifact in task.get('artifacts', ()):
        artifact['artifactId'] = artifact['artifactId'].removeprefix(task['id'])
    return task['status']['state'], task.get('artifacts'), [result.output for result in completed]


@pytest.fixture
def at_temporal(tmp_path: Path, temporal: str) -> TemporalSetup:
    return TemporalSetup(tmp_path, temporal)


class Array:
    """Like an array of numpy: its comparison is no bool."""

    def __init__(self, items: list[int]) -> None:
        self.items = items

    def __eq__(self, other: object) -> Any:
        return Array([])

    def __hash__(self) -> int:
        return len(self.items)

    def __bool__(self) -> bool:
        raise ValueError('ambiguous')

    def __repr__(self) -> str:
        return f'Array({self.items})'


def report(city: str) -> Artifacts:
    return Artifacts({'cat': Cat(name=city), 'day': date(2026, 11, 28)})


Items = Annotated[
    Array, PlainValidator(Array), PlainSerializer(lambda array: array.items, return_type=list[int]), WithJsonSchema({})
]
NOT_ROUND_TRIP: dict[str, tuple[Any, dict[str, Any], Any]] = {
    'a validator that changes values': (Doubled, {'cents': 7}, {'cents': 700}),
    'a secret': (Secret, {'word': 'abc'}, {'word': '**********'}),
}
NOT_COMPARABLE: dict[str, tuple[Any, dict[str, Any], list[Any], Any]] = {
    # The output type, what the model answers with, what the client gets, and what the hook gets.
    'an array': (Items, {'response': [1, 2]}, [[1, 2]], 'Array([1, 2])'),
    'artifacts': (report, {'city': 'a'}, [{'name': 'a'}, '2026-11-28'], {'cat': {'name': 'a'}, 'day': '2026-11-28'}),
}


@pytest.mark.parametrize('case', NOT_ROUND_TRIP)
async def test_on_complete_gets_json_if_output_would_change(
    at_temporal: TemporalSetup, case: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(temporal_result, '_changed_outputs', set[Any]())  # an earlier test may have the type
    output_type, answer, dumped = NOT_ROUND_TRIP[case]
    agent = at_temporal.agent(answering(answer, ''), output_type=output_type)
    options = at_temporal.options()
    state, artifacts, completed = await outcome_of(agent, options)
    await outcome_of(agent, options)
    assert state == 'TASK_STATE_COMPLETED'
    assert artifacts[0]['parts'][0]['data'] == {'result': dumped}
    assert completed == [dumped]
    name = output_type.__name__
    assert caplog.text.count(f'Outputs of the type {name} change on their way from a workflow') == 1


@pytest.mark.parametrize('case', NOT_COMPARABLE)
async def test_output_without_equality_reaches_client_and_hook(at_temporal: TemporalSetup, case: str) -> None:
    output_type, answer, expected, heard = NOT_COMPARABLE[case]
    agent = at_temporal.agent(answering(answer, ''), output_type=output_type)
    _, artifacts, completed = await outcome_of(agent, at_temporal.options())
    assert [artifact['parts'][0]['data']['result'] for artifact in artifacts] == expected
    assert completed == [heard]


@pytest.mark.parametrize('streams', [True, False])
async def test_lone_surrogate_in_answer_is_replaced(at_temporal: TemporalSetup, streams: bool) -> None:
    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        yield 'ab\ud83d'

    model = FunctionModel(stream_function=stream) if streams else answering('ab\ud83d', '')
    agent = at_temporal.agent(model, streams=streams)
    _, artifacts, completed = await outcome_of(agent, at_temporal.options())
    assert (artifacts[0]['parts'][0]['text'], completed) == ('ab\ufffd', ['ab\ufffd'])


class Counted(BaseModel):
    """Can be read once after it was written for the client and for the hooks."""

    cents: int
    written: ClassVar[int] = 0
    read: ClassVar[int] = 0

    @field_validator('cents')
    @classmethod
    def count_read(cls, cents: int) -> int:
        cls.read += cls.written > 1
        if cls.read > 1:
            raise ValueError('read again')
        return cents

    @field_serializer('cents')
    def count_written(self, cents: int) -> int:
        type(self).written += 1
        return cents


async def test_on_complete_gets_json_of_unreadable_output(
    at_temporal: TemporalSetup, caplog: pytest.LogCaptureFixture
) -> None:
    agent = at_temporal.agent(answering({'cents': 7}, ''), output_type=Counted)
    *_, completed = await outcome_of(agent, at_temporal.options())
    assert completed == [{'cents': 7}]
    assert 'on_complete gets the JSON of an output that this process cannot read as its type.' in caplog.text


class WritesPreviousVersion(client.Interceptor, Interceptor):
    """Has workflows read and write the arrays that the version before read and wrote."""

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:
        return _OfVersionBefore


REWRITTEN = list[str]()
"""The workflows with the data of the version before."""


class _OfVersionBefore(WorkflowInboundInterceptor):
    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
        *before, _ = from_json(input.args[0]).values()
        end = from_json(await super().execute_workflow(replace(input, args=[to_json(before)])))
        REWRITTEN.append(workflow.info().task_queue)
        *rest, _, _ = (end['rest'].get(name) for name in RunOutput._fields)
        return to_json(['', end['values'], rest])


async def test_workflow_result_of_previous_version_is_read(at_temporal: TemporalSetup) -> None:
    agent = at_temporal.agent(answering({'name': 'Tom'}, 'Cat'), output_type=[Cat, Refused])
    _, artifacts, completed = await outcome_of(agent, at_temporal.options(interceptors=[WritesPreviousVersion()]))
    assert artifacts[0]['parts'][0]['metadata']['python_type'] == 'Cat'
    assert completed == [Cat(name='Tom')]
    assert at_temporal.queue in REWRITTEN
