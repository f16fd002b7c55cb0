"""Agents of the playground's tests and pictures: their models follow a script that the message chooses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from pydantic_ai import Agent, Tool
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel

from pydantic_ai_a2a import AuthRequired, InputRequired

Step = str | Mapping[int, DeltaToolCall] | Mapping[int, DeltaThinkingPart]
Script = Mapping[str, Sequence[Step]]


def tool_call(tool: str, args: str = '{}', n: int = 1) -> dict[int, DeltaToolCall]:
    return {n: DeltaToolCall(tool, args, tool_call_id=f'{tool}-{n}')}


def deltas_of(text: str) -> Sequence[str]:
    """A text as the deltas of a model."""
    return text.replace(' ', ' \0').split('\0')


def prompt(messages: list[ModelMessage]) -> str:
    """The text of the newest message of the user."""
    parts = [part for message in messages for part in message.parts if isinstance(part, UserPromptPart)]
    content = parts[-1].content
    return content if isinstance(content, str) else ' '.join(item for item in content if isinstance(item, str))


def returns(messages: list[ModelMessage]) -> list[Any]:
    """The results of the tools since the newest message of the user."""
    last = messages[-1]
    parts = last.parts if isinstance(last, ModelRequest) else ()
    return [part.content for part in parts if isinstance(part, ToolReturnPart) and part.tool_name != 'final_result']


def scripted(script: Script, after: str = '', name: str = 'keeper', **options: Any) -> Agent[None, Any]:
    """An agent whose model sends the steps of the prompt. After tools, the model sends a text, or their results."""

    def steps(messages: list[ModelMessage]) -> Sequence[Step]:
        results = returns(messages)
        return [after or f'Results: {results}'] if results else script[prompt(messages)]

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        for step in steps(messages):
            yield step

    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse([part for step in steps(messages) for part in parts_of(step)])

    return Agent(FunctionModel(respond, stream_function=stream, model_name='scripted'), name=name, **options)


def parts_of(step: Step) -> list[ModelResponsePart]:
    """A step as the parts of a response that is not streamed."""
    if isinstance(step, str):
        return [TextPart(step)]
    return [
        ThinkingPart(delta.content or '')
        if isinstance(delta, DeltaThinkingPart)
        else ToolCallPart(delta.name or '', delta.json_args, delta.tool_call_id or '')
        for delta in step.values()
    ]


KEEPER: Script = {
    'Tidy up.': ['I found an old file. ', tool_call('delete_file', '{"path": "old.txt", "force": false}')],
    'Tidy all.': [
        tool_call('delete_file', '{"path": "old.txt"}', 1),
        tool_call('delete_file', '{"path": "new.txt"}', 2),
    ],
    'Pizza.': [tool_call('order')],
    'Mail.': [tool_call('newest_mail')],
    'Name it.': [tool_call('ask_name')],
    'Where?': [tool_call('look_up', '{"city": "Paris"}')],
    'Think.': [{0: DeltaThinkingPart(content='Paris is sunny in May.')}, 'It is sunny.'],
}


def file_keeper(more: Script | None = None) -> Agent[None, Any]:
    """An agent that asks before a file is deleted, asks for a pizza, and wants the user to sign in."""
    agent = scripted(
        {**KEEPER, **(more or {})}, description='Keeps your files tidy, and asks before a file is deleted.'
    )
    signed_in: list[str] = []

    @agent.tool_plain(requires_approval=True)
    def delete_file(path: str, force: bool = False) -> str:
        """Delete a file.

        Args:
            path: The file to delete.
            force: True deletes a file that is in use.
        """
        return f'{path} is deleted ({force=})'

    @agent.tool_plain
    def order() -> str:
        raise InputRequired('Which pizza?', schema=PIZZA)

    @agent.tool_plain
    def newest_mail() -> str:
        if not signed_in:
            signed_in.append('ada')
            raise AuthRequired('Please sign in.', schemes=['sso'], url='https://sso.example.com/start')
        return 'Lunch?'

    @agent.tool_plain
    def ask_name() -> str:
        raise InputRequired('Which name?')

    @agent.tool_plain
    def look_up(city: str) -> str:
        return f'It is sunny in {city}.'

    _ = (delete_file, order, newest_mail, ask_name, look_up)
    return agent


def agent_with_question(schema: Any, after: str = '') -> Agent[None, Any]:
    """An agent that answers `Ask.` with a question. The schema is the one of its answer."""
    agent = scripted({'Ask.': [tool_call('ask')]}, after)

    @agent.tool_plain
    def ask() -> str:
        raise InputRequired('Which one?', schema=schema)

    _ = ask
    return agent


def return_arguments(**args: Any) -> str:
    return repr(args)


def agent_with_approval(
    args: str, schema: Mapping[str, Any] | None = None, keep: Callable[..., object] = return_arguments
) -> Agent[None, Any]:
    """An agent that answers `Keep.` with a call that must be approved. The schema is the one of the arguments."""
    tool = Tool[None].from_schema(keep, 'keep', 'Keep it.', {'type': 'object', **(schema or {})})
    tool.requires_approval = True
    return scripted({'Keep.': [tool_call('keep', args)]}, tools=[tool])


PIZZA = {
    'type': 'object',
    'title': 'Pizza',
    'required': ['kind', 'size', 'count'],
    'properties': {
        'kind': {'enum': ['Margherita', 'Funghi'], 'title': 'Kind'},
        'size': {'type': 'string', 'title': 'Size', 'enum': ['small', 'large']},
        'count': {'type': 'integer', 'title': 'Number of pizzas', 'minimum': 1},
        'thin': {'type': 'boolean', 'title': 'Thin crust'},
        'to': {
            'type': 'object',
            'title': 'Address',
            'required': ['street'],
            'properties': {
                'street': {'type': 'string', 'title': 'Street'},
                'floor': {'type': 'number', 'title': 'Floor'},
            },
        },
        'extras': {'type': 'array', 'items': {'type': 'string'}, 'title': 'Extras'},
    },
}
