"""A client that lets an agent read the client's notes: the agent calls a tool that the client has declared.

Run the example from this directory with `python client_tools.py`, or only the agent with `uvicorn client_tools:app`.
The model needs no API key: it reads the note that the prompt names, if the client has brought a tool for that.
"""

from __future__ import annotations

import asyncio

from pydantic_ai import Agent, FunctionToolset, Tool
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai_a2a import A2AClient, Messages, RemoteAgent, serve, to_a2a


def read(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Stands in for a model."""
    last = messages[-1].parts[-1]
    if isinstance(last, ToolReturnPart):
        return ModelResponse(parts=[TextPart(f'The note says: {last.content}')])
    if 'read_note' not in {tool.name for tool in info.function_tools}:
        return ModelResponse(parts=[TextPart('I have no tool to read notes.')])
    [prompt] = [str(part.content) for part in messages[-1].parts if isinstance(part, UserPromptPart)]
    return ModelResponse(parts=[ToolCallPart('read_note', {'name': prompt.split()[-1].strip('?')})])


agent = Agent(FunctionModel(read), name='Secretary', description='Reads the notes of whoever lets it.')
app = to_a2a(agent, messages=Messages(client_tools=True))


# --- the client -----------------------------------------------------------------------------------------------------

NOTES = {'shopping': 'Buy milk.', 'sunday': 'Call Ada.'}


def read_note(name: str) -> str:
    """Read a note of the user."""
    return NOTES.get(name, 'There is no such note.')


async def ask(client: A2AClient, question: str) -> str:
    """Ask the agent, and answer its calls until the task is over."""
    result = await client.send(question, tools=[Tool(read_note).tool_def])
    while calls := result.pending:
        result = await result.answer({call['id']: read_note(**call.get('args', {})) for call in calls})
    return result.text


async def main(url: str) -> None:
    async with A2AClient(url) as client:
        print(await ask(client, 'What is in my note shopping?'))

        # The same, as an agent: the calls are answered by the toolset of the run.
        secretary = RemoteAgent(client)
        answer = await secretary.run('What is in my note sunday?', toolsets=[FunctionToolset([read_note])])
        print(answer.output)


if __name__ == '__main__':
    with serve(app) as server:
        asyncio.run(main(server.url))
