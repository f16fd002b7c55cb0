"""An agent that asks before it deletes, asks back where it does not know enough, and leaves to others what they do.

Run it from this directory with `uvicorn approvals:app`. The model needs no API key: it does what the prompt says, such
as `delete report.txt`, `order a pizza` or `weigh the parcel`.
"""

from __future__ import annotations

from pydantic_ai import Agent, CallDeferred
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai_a2a import Approvals, InputRequired, to_a2a

TOOLS = {'delete': ('delete_file', 'path'), 'order': ('order', 'what'), 'weigh': ('weigh', 'what')}


def obey(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Stands in for a model."""
    parts = [part for message in messages for part in message.parts]
    if isinstance(last := parts[-1], ToolReturnPart):
        return ModelResponse(parts=[TextPart(str(last.content))])
    prompt = [str(part.content) for part in parts if isinstance(part, UserPromptPart)][-1]
    verb, _, rest = prompt.partition(' ')
    name, argument = TOOLS.get(verb, TOOLS['order'])
    return ModelResponse(parts=[ToolCallPart(name, {argument: rest})])


agent = Agent(FunctionModel(obey), name='Clerk', description='Deletes files and orders things, once you agree.')


@agent.tool_plain(requires_approval=True)
def delete_file(path: str) -> str:
    """Delete a file."""
    return f'{path} is deleted.'


@agent.tool_plain
def order(what: str) -> str:
    """Order something."""
    raise InputRequired(f'What kind of {what}?')


@agent.tool_plain
def weigh(what: str) -> str:
    """Have something weighed, by whoever has it: the result comes with the client's answer."""
    raise CallDeferred


app = to_a2a(agent, approvals=Approvals(plain_text_answers='all'))
