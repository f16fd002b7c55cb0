"""Serve any Pydantic AI agent over A2A (Agent2Agent): `to_a2a(agent)`.

Importing the package also makes `agent.to_a2a()` work on every agent.
"""

from .agent_worker import AgentWorker
from .app import A2AApp, to_a2a
from .attach import attach
from .conversion.outbound import Artifacts
from .errors import A2AError
from .mounting import mount
from .runner import RunOptions
from .serve import Server, run, serve
from .settings import Limits, Progress, Retention, Workers
from .types import Caller

__all__ = (
    'A2AApp',
    'A2AError',
    'AgentWorker',
    'Artifacts',
    'Caller',
    'Limits',
    'Progress',
    'Retention',
    'RunOptions',
    'Server',
    'Workers',
    'mount',
    'run',
    'serve',
    'to_a2a',
)

attach()
