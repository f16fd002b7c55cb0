"""What cannot work at an engine is refused when the app is made, or fails the run with a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NoReturn

import pytest
from pydantic import AfterValidator
from pydantic_ai import Agent, BinaryImage, RunContext, Tool
from pydantic_ai.agent import WrapperAgent
from pydantic_ai.capabilities import (
    AbstractCapability,
    CombinedCapability,
    Instrumentation,
    LocalWorkspace,
    ModelFallback,
    ResolveModelId,
    SelectModel,
    SetToolMetadata,
)
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.durable_exec.temporal import TemporalDurability
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import FilePart, ModelMessage
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, DynamicToolset, ExternalToolset, FunctionToolset

from pydantic_ai_a2a import a2a, to_a2a

from ...agents import scripted_model
from ...app_client import state_of
from ...engines import ACTIVITIES, DbosSetup, EngineSetup, TemporalSetup
from ...serving import serving

OTHER = TestModel(custom_output_text='other')
PNG = BinaryImage(b'png', media_type='image/png')
MCP = 'http://127.0.0.1:1/mcp'
CHILD: Mapping[str, Any] = {'child_workflow': {}}


async def look() -> str:
    return 'a'


def look_in_thread() -> str:
    return 'a'


def once(number: int) -> int:
    """Take the first value of a `TestModel`, and not its own result."""
    if number:
        raise ValueError('only 0')
    return 1


async def count(number: Annotated[int, AfterValidator(once)]) -> int:
    return number


async def draw(ctx: RunContext[Any]) -> None:
    await a2a(ctx).artifact('a map', name='map')


async def hide(ctx: RunContext[Any], tool: ToolDefinition) -> None:
    """Leave a tool out."""


def functions(tool: Any = look, prepare: Any = None, **metadata: Any) -> FunctionToolset[Any]:
    return FunctionToolset([Tool(tool, prepare=prepare, metadata=metadata)], id='functions')


def dynamic(**metadata: Any) -> DynamicToolset[Any]:
    return DynamicToolset(lambda _: functions(**metadata), id='dynamic')


def read(path: str) -> BinaryImage:
    """Return an image as the output of the agent."""
    return PNG


def fail(messages: list[ModelMessage], info: AgentInfo) -> NoReturn:
    raise ModelHTTPError(400, 'main')


IMAGES = scripted_model(FilePart(PNG), profile=ModelProfile(supports_image_output=True))


def resolve(ctx: Any, model_id: str) -> TestModel | None:
    return OTHER if model_id == 'mine' else None


class Note(AbstractCapability[Any]):
    """A capability of a run, which does nothing."""


def note(ctx: RunContext[Any]) -> Note:
    return Note()


class SwapsModel(AbstractCapability[Any]):
    """Takes a model that the engine does not know."""

    async def before_model_request(self, ctx: RunContext[Any], request_context: Any) -> Any:
        request_context.model = OTHER
        return request_context


@dataclass
class Case:
    """An agent with the options of its app, and what each engine says: nothing if the task completes."""

    dbos: str = ''
    temporal: str = ''
    agent: Mapping[str, Any] = field(default_factory=dict[str, Any])
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    models: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The models that the capability knows."""
    late: AbstractToolset[Any] | None = None
    """Added to the agent by `@agent.toolset`."""

    def of(self, kit: EngineSetup) -> tuple[str, Agent[Any, Any], dict[str, Any]]:
        """What the engine says, the agent, and the options of the app."""
        dbos = isinstance(kit, DbosSetup)
        durability: AbstractCapability[Any] = (
            DBOSDurability(models=self.models)
            if dbos
            else TemporalDurability(models=self.models, activity_config=ACTIVITIES)
        )
        arguments: dict[str, Any] = {'model': TestModel(), **self.agent}
        arguments['capabilities'] = [durability, *arguments.get('capabilities', ())]
        agent = Agent(arguments.pop('model'), name='agent', **arguments)
        if (late := self.late) is not None:
            agent.toolset(lambda _: late)
        return self.dbos if dbos else self.temporal, agent, {**kit.options(), **self.options}


ADDED, BOUND, SAME_ID = (
    'cannot be added at runtime',
    'Attach all capabilities at agent construction',
    'a different `id`',
)
UNKNOWN_MODEL = 'Register the instance in `models=`'
OPT_OUT: Mapping[str, Any] = {'temporal': False}
AT_APP_CREATION: Mapping[str, Case] = {
    'toolset': Case('', ADDED, options={'toolsets': [functions()]}),
    'prefixed toolset': Case('', ADDED, options={'toolsets': [functions().prefixed('p')]}),
    'toolset without activities': Case(options={'toolsets': [functions(**OPT_OUT)]}),
    'external toolset': Case(options={'toolsets': [ExternalToolset([])]}),
    'dynamic toolset': Case(ADDED, ADDED, options={'toolsets': [dynamic()]}),
    'MCP toolset': Case(ADDED, ADDED, options={'toolsets': [MCPToolset(MCP, id='mcp')]}),
    '@agent.toolset': Case(ADDED, ADDED, late=functions()),
    'id of a toolset': Case(
        '', SAME_ID, agent={'toolsets': [functions()]}, options={'toolsets': [ExternalToolset([], id='functions')]}
    ),
    'id of a dynamic toolset': Case(
        SAME_ID, SAME_ID, agent={'toolsets': [dynamic()]}, options={'toolsets': [ExternalToolset([], id='dynamic')]}
    ),
    'capability': Case(BOUND, BOUND, options={'capabilities': [Note()]}),
    'function that makes a capability': Case(BOUND, BOUND, options={'capabilities': [note]}),
    'Instrumentation': Case(options={'capabilities': [Instrumentation()]}),
    'spec with a capability': Case(BOUND, BOUND, options={'spec': {'capabilities': ['Thinking']}}),
    'spec': Case(options={'spec': {'model': 'test', 'instructions': 'Be short.'}}),
    'model': Case(UNKNOWN_MODEL, UNKNOWN_MODEL, options={'model': OTHER}),
    'known model': Case(models={'other': OTHER}, options={'model': OTHER}),
    'name of a known model': Case(models={'other': OTHER}, options={'model': 'other'}),
    'name of a model': Case(options={'model': 'test'}),
    'fallback': Case(
        UNKNOWN_MODEL,
        UNKNOWN_MODEL,
        agent={'model': FunctionModel(fail), 'capabilities': [ModelFallback(OTHER)]},
    ),
    'name of a fallback': Case(
        'Make it known',
        'Make it known',
        agent={'model': FunctionModel(fail), 'capabilities': [ModelFallback('test')]},
    ),
    'name of a known fallback': Case(
        models={'other': OTHER}, agent={'model': FunctionModel(fail), 'capabilities': [ModelFallback('other')]}
    ),
    'name of a fallback as the model': Case(agent={'model': None, 'capabilities': [ModelFallback('test')]}),
    'fallback as the model': Case(
        UNKNOWN_MODEL, UNKNOWN_MODEL, agent={'model': None, 'capabilities': [ModelFallback(OTHER)]}
    ),
    'resolved name of a fallback': Case(
        models={'other': OTHER},
        agent={'model': FunctionModel(fail), 'capabilities': [ModelFallback('mine'), ResolveModelId(resolve)]},
    ),
    'known fallback': Case(
        models={'other': OTHER}, agent={'model': FunctionModel(fail), 'capabilities': [ModelFallback(OTHER)]}
    ),
    'image': Case('', 'Show them with a2a', agent={'model': IMAGES, 'output_type': BinaryImage}),
    'image of a run': Case(
        '', 'Show them with a2a', agent={'model': IMAGES}, options={'output_type': [str, BinaryImage]}
    ),
    'image of an output function': Case(agent={'output_type': read}),
    'workspace': Case('LocalWorkspace', 'LocalWorkspace', options={'workspace': 'new'}),
    'workspace of the agent': Case(agent={'capabilities': [LocalWorkspace('.')]}, options={'workspace': 'new'}),
    'sync tool without activities': Case(
        '', 'Make the tool function async', agent={'toolsets': [functions(look_in_thread, **OPT_OUT)]}
    ),
    'wrong metadata': Case('', 'invalid Temporal `ActivityConfig`', agent={'toolsets': [functions(temporal={'a': 1})]}),
    'sync tool in a child workflow': Case(
        'only async function tools',
        'Make the tool function async',
        agent={'toolsets': [functions(look_in_thread, temporal=CHILD, dbos=CHILD)]},
    ),
    'wrong metadata of a tool left out': Case(agent={'toolsets': [functions(look_in_thread, hide, **OPT_OUT)]}),
    'wrong metadata that a capability replaces': Case(
        agent={
            'toolsets': [functions(look_in_thread, **OPT_OUT)],
            'capabilities': [SetToolMetadata(temporal={'summary': 'a'})],
        }
    ),
    'child workflow': Case(agent={'toolsets': [functions(temporal=CHILD, dbos=CHILD)]}),
}


@pytest.mark.parametrize('case', AT_APP_CREATION)
async def test_app_creation_refuses_options_unsupported_in_runs(kit: EngineSetup, case: str) -> None:
    refusal, agent, options = AT_APP_CREATION[case].of(kit)
    if refusal:
        with pytest.raises(TypeError, match=refusal):
            to_a2a(agent, **options)
    else:
        async with serving(agent, **options) as client:
            assert state_of(await client.send('hello')) == 'COMPLETED'


AT_RUN: Mapping[str, Case] = {
    'model of a hook': Case(UNKNOWN_MODEL, UNKNOWN_MODEL, agent={'capabilities': [SwapsModel()]}),
    'selected model': Case(UNKNOWN_MODEL, UNKNOWN_MODEL, agent={'capabilities': [SelectModel(lambda _: OTHER)]}),
    'metadata of a capability': Case(
        '',
        'Make the tool function async',
        agent={'toolsets': [functions(look_in_thread)], 'capabilities': [SetToolMetadata(**OPT_OUT)]},
    ),
    'metadata of a dynamic toolset': Case('', 'Remove the opt-out', agent={'toolsets': [dynamic(**OPT_OUT)]}),
    'validator of a parameter': Case('', 'a validator has refused its own result', agent={'tools': [count]}),
    'task in a child workflow': Case(
        '', 'remove child_workflow from the tool', agent={'toolsets': [functions(draw, temporal=CHILD, dbos=CHILD)]}
    ),
}


@pytest.mark.parametrize('case', AT_RUN)
async def test_unsupported_model_or_tool_fails_run(
    kit: EngineSetup, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    refusal, agent, options = AT_RUN[case].of(kit)
    async with serving(agent, **options) as client:
        task = await client.send('hello')
    if refusal:
        assert task['status']['message']['metadata']['failure'] == 'internal'
        assert refusal in caplog.text
    else:
        assert state_of(task) == 'COMPLETED'


def test_app_creation_checks_wrapped_agent(kit: EngineSetup) -> None:
    refusal, agent, options = Case(ADDED, ADDED, late=functions()).of(kit)
    with pytest.raises(TypeError, match=refusal):
        to_a2a(WrapperAgent(agent), **options)


class WithoutCapabilities(WrapperAgent[Any, Any]):
    """An agent of a class without capabilities."""

    @property
    def root_capability(self) -> CombinedCapability[Any]:
        raise NotImplementedError


def test_agent_of_class_without_capabilities_is_refused(kit: EngineSetup) -> None:
    with pytest.raises(TypeError, match='needs an agent with the capability'):
        to_a2a(WithoutCapabilities(kit.agent(TestModel())), **kit.options())


def test_temporal_continue_as_new_is_refused(tmp_path: Path, temporal: str) -> None:
    kit = TemporalSetup(tmp_path, temporal)
    agent = Agent(TestModel(), name='agent', capabilities=[TemporalDurability(continue_as_new=print)])
    with pytest.raises(TypeError, match='Give the app an agent without it'):
        to_a2a(agent, **kit.options())
