"""An agent with an MCP server that needs a token of the caller. The environment names both, and the store."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from os import environ
from pathlib import Path
from typing import Any

import httpx2
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from pydantic_ai import Agent, RunContext
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from starlette.requests import Request

from pydantic_ai_a2a import (
    A2AApp,
    Access,
    Approvals,
    BearerAuth,
    Caller,
    Credential,
    Credentials,
    Push,
    a2a,
    to_a2a,
)

from ..bounds import LIMIT
from ..constants import with_constants
from .mcp_servers import ACCESS_TOKEN, BOSS, EXCHANGE, TOKENS


class ToFile(SpanExporter):
    """Writes all of each span to a file."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with Path(environ['SPANS']).open('a') as file:
            file.writelines(f'{span.to_json(None)}\n' for span in spans)
        return SpanExportResult.SUCCESS


def model(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    """Read the newest mail, delete the mail, and answer with the results of both calls."""
    results = [str(part.content) for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    if len(results) == 2:
        return ModelResponse(parts=[TextPart(', then '.join(results))])
    return ModelResponse(parts=[ToolCallPart('delete_mail' if results else 'read_mail', {})])


async def exchange(request: Request, caller: Caller) -> Credential:
    form = {
        'grant_type': EXCHANGE,
        'subject_token': request.headers['authorization'].removeprefix('Bearer '),
        'subject_token_type': ACCESS_TOKEN,
        'audience': 'mail',
    }
    async with httpx2.AsyncClient(timeout=LIMIT) as client:
        answer = await client.post(f'{environ["MAIL"]}token', auth=('agent', 'secret-of-the-agent'), data=form)
    token: dict[str, Any] = answer.raise_for_status().json()
    return Credential(value=token['access_token'], expires_in=token['expires_in'])


async def token_of_caller(ctx: RunContext[object]) -> str:
    return await a2a(ctx).credential()


def make_app() -> A2AApp:
    logging.basicConfig(level=logging.DEBUG)
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(ToFile()))
    trace.set_tracer_provider(provider)
    Agent.instrument_all()
    toolset = MCPToolset[object](f'{environ["MAIL"]}mcp', auth=token_of_caller)
    asks = toolset.approval_required(lambda ctx, tool, args: tool.name == 'delete_mail')
    agent = Agent(FunctionModel(model), name='inbox', toolsets=[asks])
    key = environ['KEY']
    boss = Caller(id='boss', scopes=frozenset({'approve'}))
    return to_a2a(
        agent,
        backend=environ['A2A_TEST_BACKEND'],
        auth=BearerAuth({**{token: user for user, token in TOKENS.items()}, BOSS: boss}),
        access=Access(credentials=with_constants(Credentials, exchange=exchange, keys=[key], timeout=LIMIT)),
        approvals=Approvals(approvers='approve'),
        push=with_constants(Push, keys=[key], private_hosts=['127.0.0.1'], backoff=0.05),
    )
