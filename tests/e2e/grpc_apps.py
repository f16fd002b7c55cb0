"""Apps that several processes serve over gRPC. This module runs in the servers' processes."""

from __future__ import annotations

import os
from functools import partial

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from starlette.applications import Starlette

from pydantic_ai_a2a import BearerAuth, Results, Retention, Workers, mount, run, serve_grpc, to_a2a

from ..bounds import LOGS
from .apps import puppet
from .gates import ROUTES

TOKEN = 'the-token-of-ann-1234'
FILE = 'sqlite:///agent.db'


def tell(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    return ModelResponse(parts=[TextPart(str(os.getpid()))])


shared = to_a2a(
    Agent(FunctionModel(tell)), backend=FILE, lifespan=partial(serve_grpc, port=int(os.environ.get('GRPC_PORT', '0')))
)
"""Answers with the number of the process."""

resumed = to_a2a(
    puppet,
    routes=ROUTES,
    backend=FILE,
    results=Results(stream='mark', interval=0),
    retention=Retention(events=LOGS),
    workers=Workers(drain_grace=0.2),
)

two = Starlette()
mount(two, '/a', to_a2a(puppet, name='a'))
mount(two, '/b', to_a2a(puppet, name='b'))

if __name__ == '__main__':
    run(
        to_a2a(puppet, auth=BearerAuth({TOKEN: 'ann'})),
        port=0,
        grpc_port=0,
        ssl_certfile='server.crt',
        ssl_keyfile='server.key',
        ssl_ca_certs='authority.pem',
        ssl_cert_reqs=2,
    )
