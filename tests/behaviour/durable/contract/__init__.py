"""Scenarios of the contract of engines: a task at an engine ends as it would without one.

A scenario is a function with the name of its promise. It serves an agent, and does what clients do. What clients, hooks
and the store then have is compared with what they have without an engine; ids and times are left out.
`test_engine_contract.py` runs all scenarios. A difference that must be is a row of the table "Differences" in
`docs/durable-engines.md`.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import deepcopy
from itertools import groupby
from typing import Any, TypeAlias, cast

from pydantic_ai import Agent, BinaryContent
from pydantic_ai.exceptions import RunCancelled
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo
from pydantic_ai.run import AgentRunResult

from pydantic_ai_a2a import RunFailure, Workers
from pydantic_ai_a2a.wire.extensions.own_extensions import RUN_METADATA_URI

from ....app_client import Client
from ....engines import NoEngine
from ....serving import serving

Scenario: TypeAlias = 'Callable[[ScenarioRun], Awaitable[None]]'
SCENARIOS: dict[str, Scenario] = {}
"""All scenarios, by the words of their names."""


def scenario(play: Scenario) -> Scenario:
    """Add a scenario, whose name is that of the function."""
    add(play.__name__.replace('_', ' '), play)
    return play


def add(name: str, play: Scenario) -> None:
    assert name not in SCENARIOS
    SCENARIOS[name] = play


def add_table(name: str, cases: Mapping[str, Any], play: Callable[[ScenarioRun, Any], Awaitable[None]]) -> None:
    """Add a scenario for each case of a table.

    Args:
        name: Beginning of the names.
        cases: The cases by the ends of the names.
        play: The scenario of one case.
    """
    for end, case in cases.items():
        add(f'{name} {end}', _with(play, case))


def _with(play: Callable[[ScenarioRun, Any], Awaitable[None]], case: Any) -> Scenario:
    return lambda playing: play(playing, case)


class ScenarioRun:
    """A scenario at one place: without an engine, or at one."""

    def __init__(self, kit: NoEngine) -> None:
        self.kit = kit
        self.seen: dict[str, list[Any]] = {}
        """What clients, hooks, tools and the store have, without ids and times."""

    def note(self, where: str, value: Any) -> None:
        """Keep something that must be the same everywhere, such as what a tool has been given."""
        self.seen.setdefault(where, []).append(_without_ids_and_times(deepcopy(value)))

    def agent(self, model: Any, **arguments: Any) -> Agent[Any, Any]:
        """An agent for the place of the scenario."""
        return self.kit.agent(model, **arguments)

    @asynccontextmanager
    async def serving(self, agent: Agent[Any, Any], **options: Any) -> AsyncGenerator[RecordingClient]:
        """A client of an app with the agent. Afterwards, `seen` has all that clients, hooks and the store have."""
        for name, hear in (('on_complete', self._complete), ('on_cancel', self._cancel), ('on_failure', self._fail)):
            options.setdefault(name, hear)
        if type(self.kit) is NoEngine:  # the engine tries requests again, or nobody
            options.setdefault('workers', Workers(retries=0))
        async with serving(agent, **options, **self.kit.options()) as client:
            watching = RecordingClient(client, self)
            yield watching
            for task_id, context_id in watching.tasks.items():
                self.note('task', await client.call('GetTask', {'id': task_id}, **_EXTENSIONS))
                if await client.a2a_app.conversations().load(context_id) is not None:
                    self.note('conversation', _dumped(await client.messages_of(context_id)))

    def _complete(self, result: AgentRunResult[Any]) -> None:
        self.note('on_complete', (type(result.output), result.output, result.usage))
        self.note('on_complete', [_dumped(result.all_messages()), len(result.new_messages())])

    def _cancel(self, canceled: RunCancelled) -> None:
        self.note('on_cancel', (_dumped(canceled.new_messages()), canceled.usage))

    def _fail(self, failure: RunFailure) -> None:
        self.note('on_failure', failure.kind)


_EXTENSIONS = {'A2A_Extensions': RUN_METADATA_URI}


class RecordingClient(Client):
    """A client that has its play note what it gets."""

    def __init__(self, client: Client, play: ScenarioRun) -> None:
        super().__init__(client.app)
        self._play = play
        self.tasks: dict[str, str] = {}
        """The contexts of the tasks that the client knows, by the ids of the tasks."""

    async def call(self, method: str, params: Any = None, **headers: str) -> Any:
        result = await super().call(method, params, **{**_EXTENSIONS, **headers})
        task = result if method == 'CancelTask' else result.get('task') if method == 'SendMessage' else None
        if task is not None:
            self.tasks[task['id']] = task['contextId']
            self._play.note('answer', task)
        return result

    async def watch(self, sent: str | dict[str, Any] = 'hello') -> dict[str, Any]:
        """Send a message, read the events of its task to their end, and return the task."""
        async with self.send_streaming(sent) as stream:
            events = [event.result async for event in stream]
        self._play.note('events', _joined(events))
        first = events[0]['task']
        self.tasks[first['id']] = first['contextId']
        return await self.get_task(first['id'])


def _joined(events: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Events of a stream, in which consecutive pieces of one artifact are one: their sizes are a matter of time."""
    joined: list[Any] = []

    def artifact_of(event: Mapping[str, Any]) -> str:
        return event.get('artifactUpdate', {}).get('artifact', {}).get('artifactId', '')

    for artifact_id, group in groupby(events, artifact_of):
        if not artifact_id:
            joined += group
            continue
        texts, others = '', list[Any]()
        for update in (event['artifactUpdate'] for event in group):
            texts = texts if update.get('append') else ''
            for part in update['artifact']['parts']:
                texts += part.get('text', '')
                others += [] if 'text' in part else [part]
        joined.append([texts, *others])
    return joined


_LEFT_OUT = frozenset((
    *('id', 'taskId', 'contextId', 'messageId', 'artifactId', 'runId', 'correlationId', 'timestamp'),
    *('run_id', 'conversation_id', 'duration', 'content_file_digests'),
))  # fmt: skip
_IDS = re.compile(r'pyd_ai_\w+|\b[0-9a-f]{8}-[0-9a-f-]{27}\b|\b[0-9a-f]{32}\b')


def _without_ids_and_times(value: Any) -> Any:
    """Return a value without ids and times, that can be compared."""
    if isinstance(value, Mapping):
        items = cast('Mapping[Any, Any]', value).items()
        return {
            _without_ids_and_times(name): _without_ids_and_times(item) for name, item in items if name not in _LEFT_OUT
        }
    if type(value) in (list, tuple):
        return [_without_ids_and_times(item) for item in value]
    if isinstance(value, str) and type(value) is str:
        return _IDS.sub('id', value) if len(value) < 100_000 else value
    return 'NaN' if value != value else value  # noqa: PLR0124 - which equals nothing


def _dumped(messages: Sequence[ModelMessage]) -> Any:
    return ModelMessagesTypeAdapter.dump_python([*messages], mode='json')


# --- models -----------------------------------------------------------------------------------------------------------


def call(tool: str, call_id: str = '', **arguments: Any) -> ToolCallPart:
    return ToolCallPart(tool, arguments, call_id or tool)


def echo(messages: list[ModelMessage], _: AgentInfo) -> str:
    """Say all that the model has been told."""
    told = [item for sent in messages for part in sent.parts for item in _part_texts(part)]
    last = messages[-1]
    return f'{(last.instructions if isinstance(last, ModelRequest) else None) or ""}{_without_ids_and_times(told)}'


def name_tools(_: list[ModelMessage], info: AgentInfo) -> str:
    """Say which tools the model has."""
    return f'{sorted((tool.name, tool.description) for tool in info.function_tools)}'


def _part_texts(part: Any) -> list[str]:
    if isinstance(part, ToolReturnPart):
        return [part.model_response_str(), *map(_described, part.files)]
    content = getattr(part, 'content', '')  # of a prompt, or of a request to try again
    return [content] if isinstance(content, str) else [*map(_described, content)]


def _described(content: Any) -> str:
    if isinstance(content, BinaryContent):
        return f'{content.media_type} {content.data.hex()} {content.identifier}'
    return content if isinstance(content, str) else f'{content.url} {content.media_type} {content.identifier}'
