"""What a worker answers on its health port: health, and nothing else of its app."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import Agent
from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from pydantic_ai_a2a import to_a2a
from pydantic_ai_a2a.commands.running import HealthOnly

from ..client import Exchange


async def own(request: Request) -> PlainTextResponse:
    return PlainTextResponse('own')


def alone() -> Any:
    return to_a2a(Agent('test'))


def mounted() -> Any:
    parent = Starlette(routes=[Mount('/agent', alone()), Route('/own/health/live', own)])
    return CORSMiddleware(parent)


@pytest.mark.parametrize(
    ('make', 'verb', 'path', 'status'),
    [
        (alone, 'GET', '/health/live', 200),
        (alone, 'HEAD', '/health/ready', 200),
        (alone, 'POST', '/health/live', 404),
        (alone, 'OPTIONS', '/health/live', 404),
        (alone, 'GET', '/', 404),
        (alone, 'POST', '/', 404),
        (alone, 'GET', '/tasks/a%2Fhealth%2Flive', 404),
        (alone, 'GET', '/tasks/health/live', 404),
        (alone, 'GET', '/nothing/health/live', 404),
        (mounted, 'GET', '/agent/health/live', 200),
        (mounted, 'GET', '/agent/health/ready', 200),
        (mounted, 'GET', '/agent/tasks/a%2Fhealth%2Flive', 404),
        (mounted, 'GET', '/health/live', 404),
        (mounted, 'GET', '/own/health/live', 404),
    ],
)
async def test_nothing_but_health_is_answered(make: Any, verb: str, path: str, status: int) -> None:
    answer = await Exchange(HealthOnly(make()), verb, path, {}, b'').answer()
    assert answer.status == status
    if status == 404:
        assert answer.body == b'Not Found'
