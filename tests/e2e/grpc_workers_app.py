"""An app that several workers of uvicorn serve over gRPC. Answers with the number of the process."""

from __future__ import annotations

import os
from functools import partial

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import serve_grpc, to_a2a


def tell(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    return ModelResponse(parts=[TextPart(str(os.getpid()))])


app = to_a2a(
    Agent(FunctionModel(tell), name='agent'),
    backend='sqlite:///agent.db',
    lifespan=partial(serve_grpc, port=int(os.environ['GRPC_PORT'])),
)
