"""A silent stream, read by the oldest and the newest official client of each minor of A2A 0.2 and 0.3."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import Limits, serve, to_a2a

from ..fixed import fixed
from .server import LIMIT
from .venvs import python_with_a2a_sdk_0_3

SCRIPT = Path(__file__).with_name('client_of_releases.py')
RELEASES = ('0.2.5', '0.2.16', '0.3.0', '0.3.20', '0.3.26')


class Silent:
    """An app whose agent answers once its stream has had some keep-alive comments, and nothing else, in a row."""

    def __init__(self) -> None:
        self._heard = asyncio.Event()
        self._comments = 0
        self.app = to_a2a(Agent(FunctionModel(self._answer)), limits=fixed(Limits, keep_alive=0.02))

    async def _answer(self, messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        await self._heard.wait()
        return ModelResponse(parts=[TextPart('done')])

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def counted(message: Any) -> None:
            await send(message)
            self._comments += message.get('body', b'').startswith(b':')
            if self._comments == 5:
                self._heard.set()

        await self.app(scope, receive, counted)


@pytest.mark.parametrize('release', RELEASES)
def test_an_official_client_reads_a_silent_stream_to_its_end(release: str) -> None:
    python = python_with_a2a_sdk_0_3(f'a2a-sdk=={release}')
    with serve(Silent()) as server:
        done = subprocess.run(
            [str(python), str(SCRIPT), server.url], capture_output=True, text=True, timeout=LIMIT, check=False
        )
    assert (done.returncode, done.stdout.split()[-1:]) == (0, ['completed']), done.stderr
