"""The servers: `python benchmarks/targets.py NAME MODEL` serves one on a free port, which it prints."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import AsyncIterator, Callable

import uvicorn
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from pydantic_ai_a2a import Results, to_a2a

DELTAS = 50
TEXT = ('Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor. ' * 3)[:200]


async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    return ModelResponse(parts=[TextPart(TEXT)], usage=RequestUsage(input_tokens=50, output_tokens=50))


async def stream_answer(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
    step = len(TEXT) // DELTAS
    for start in range(0, len(TEXT), step):
        yield TEXT[start : start + step]


MODELS = {
    'streams': FunctionModel(answer, stream_function=stream_answer),
    'cannot stream': FunctionModel(answer),
}


def route(agent: Agent) -> Starlette:
    """What one writes by hand, without A2A's rules."""

    async def deltas(text: str) -> AsyncIterator[str]:
        async with agent.run_stream(text) as result:
            async for delta in result.stream_text(delta=True, debounce_by=None):
                yield f'data: {json.dumps({"delta": delta})}\n\n'
        yield 'data: {"state": "TASK_STATE_COMPLETED"}\n\n'

    async def serve(request: Request) -> Response:
        call = await request.json()
        text = call['params']['message']['parts'][0]['text']
        if call['method'] == 'SendStreamingMessage':
            return StreamingResponse(deltas(text), media_type='text/event-stream')
        result = await agent.run(text)
        return JSONResponse({'id': call['id'], 'state': 'TASK_STATE_COMPLETED', 'text': result.output})

    return Starlette(routes=[Route('/', serve, methods=['POST'])])


def app(agent: Agent) -> Starlette:
    """What `to_a2a` makes; each delta is an event, as with the route."""
    return to_a2a(agent, results=Results(stream='mark', interval=0))


TARGETS: dict[str, Callable[[Agent], Starlette]] = {'route': route, 'to_a2a': app}


def serve(app: Starlette) -> None:
    """Serve on a free port, which is printed."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(('127.0.0.1', 0))
        listener.listen()
        print(listener.getsockname()[1], flush=True)
        config = uvicorn.Config(app, log_level='warning', timeout_graceful_shutdown=5)
        uvicorn.Server(config).run(sockets=[listener])


def main(name: str, model: str) -> None:
    serve(TARGETS[name](Agent(MODELS[model], name='benchmark')))


if __name__ == '__main__':
    main(*sys.argv[1:])
