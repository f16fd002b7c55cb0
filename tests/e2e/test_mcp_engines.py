"""An agent at Temporal with an MCP server that restarts."""

from __future__ import annotations

import asyncio
import signal
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic_ai import Agent
from pydantic_ai.durable_exec.temporal import TemporalDurability
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.function import FunctionModel
from temporalio.common import RetryPolicy
from temporalio.workflow import ActivityConfig

from ..app_client import texts
from ..bounds import LIMIT
from ..engines import TemporalSetup
from ..reserved_ports import port_of, reserved_port
from ..serving import serving
from .test_mcp import mcp_server, model

ONCE = ActivityConfig(start_to_close_timeout=timedelta(minutes=1), retry_policy=RetryPolicy(maximum_attempts=1))


@pytest.fixture
def kit(tmp_path: Path, temporal: str) -> TemporalSetup:
    return TemporalSetup(tmp_path, temporal)


async def test_temporal_task_reaches_restarted_mcp_server(kit: TemporalSetup) -> None:
    with reserved_port() as reserved:
        port = port_of(reserved)
        toolset = MCPToolset(f'http://127.0.0.1:{port}/mcp', id='mcp', init_timeout=LIMIT)
        capability = TemporalDurability(activity_config=ONCE)
        agent = Agent(FunctionModel(model), name='agent', toolsets=[toolset], capabilities=[capability])
        async with asyncio.timeout(LIMIT), serving(agent, **kit.options()) as client:
            with mcp_server(port) as first:
                assert texts(await client.send('now')) == [str(first.pid)]
                first.signal(signal.SIGKILL)
                await first.ended()
            down = await client.send('now')
            assert down['status']['state'] == 'TASK_STATE_FAILED'
            with mcp_server(port) as second:
                assert texts(await client.send('now')) == [str(second.pid)]
