"""An agent that calls a remote agent as a tool, and passes an approval and a denial of its user on.

Run the example from this directory with `python remote_tools.py`. The models need no API key: each follows a script.
The remote agent runs in a server of this process.
"""

from __future__ import annotations

import asyncio

from pydantic_ai import Agent, DeferredToolRequests, ToolDenied
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai_a2a import A2A, remote_results, serve, to_a2a


def scripted(tool: str, argument: str, value: str) -> FunctionModel:
    """Return a model that calls one tool, and then says what the tool has returned."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        last = messages[-1].parts[-1]
        if isinstance(last, ToolReturnPart):
            return ModelResponse(parts=[TextPart(str(last.content))])
        return ModelResponse(parts=[ToolCallPart(tool, {argument: value})])

    return FunctionModel(answer)


clerk = Agent(scripted('delete_file', 'path', 'report.txt'), name='clerk', description='Deletes files.')


@clerk.tool_plain(requires_approval=True)
def delete_file(path: str) -> str:
    """Delete a file."""
    return f'{path} is deleted.'


async def ask(url: str, answer: bool | ToolDenied) -> None:
    assistant = Agent(
        scripted('clerk', 'message', 'Delete report.txt.'),
        output_type=[str, DeferredToolRequests],
        capabilities=[A2A(url)],
    )
    result = await assistant.run('Please delete my report.')
    while isinstance(requests := result.output, DeferredToolRequests):
        for call_id in requests.metadata:
            waiting = requests.metadata[call_id]['a2a_waiting']
            for call in waiting['pending']:
                print(f'The {waiting["agent"]} asks for approval of {call["tool"]} with {call["args"]}.')
                print('The user approves.' if answer is True else 'The user denies.')
        # Requests and results can be stored as JSON: the user may answer tomorrow, to another process.
        results = remote_results(requests, dict.fromkeys(requests.metadata, answer))
        result = await assistant.run(message_history=result.all_messages(), deferred_tool_results=results)
    print(result.output)


if __name__ == '__main__':
    with serve(to_a2a(clerk)) as server:
        asyncio.run(ask(server.url, True))
        asyncio.run(ask(server.url, ToolDenied('The report is still needed.')))
