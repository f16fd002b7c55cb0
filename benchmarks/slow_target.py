"""The server of slow.py: `python benchmarks/slow_target.py` serves it on a free port, which it prints.

Its model answers at once, or with more than all buffers between it and a client hold that does not read.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator

import uvicorn
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from pydantic_ai_a2a import to_a2a

PIECES, PIECE = 64, 'x' * 4096
SEND_BUFFER = 16_384
"""Bytes that the kernel keeps of what is sent: by default it takes megabytes, and no stream would stall."""


def said(messages: list[ModelMessage]) -> str:
    parts = [part for message in messages for part in message.parts if isinstance(part, UserPromptPart)]
    return str(parts[-1].content)


async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    return ModelResponse(parts=[TextPart('Hello!')], usage=RequestUsage(input_tokens=50, output_tokens=50))


async def stream_answer(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
    for _ in range(PIECES if said(messages) == 'fill' else 1):
        yield PIECE


def main() -> None:
    app = to_a2a(Agent(FunctionModel(answer, stream_function=stream_answer), name='benchmark'))
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        listener.bind(('127.0.0.1', 0))
        listener.listen(2048)
        print(listener.getsockname()[1], flush=True)
        config = uvicorn.Config(app, log_level='error', timeout_graceful_shutdown=1, backlog=2048)
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == '__main__':
    main()
