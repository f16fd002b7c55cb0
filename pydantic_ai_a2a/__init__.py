"""Serve any Pydantic AI agent over A2A (Agent2Agent): `to_a2a(agent)`.

Importing the package also makes `agent.to_a2a()` work on every agent.
"""

from .agent.dependencies import CallContext
from .agent.hooks import RunFailure
from .agent.options import RunOptions
from .app.app import A2AApp
from .app.attach import attach
from .app.build import to_a2a
from .app.mount import mount
from .app.serve import Server, run, serve
from .auth.api_key import APIKeyAuth
from .auth.base import AllOf, Authenticator
from .auth.bearer import BearerAuth
from .auth.hashes import hash_key
from .auth.jwt import JWTAuth
from .auth.request import InvalidCredentials, RequestInfo
from .auth.starlette import StarletteAuth
from .backends.postgres.settings import Postgres
from .conversion.outbound import Artifacts
from .conversion.skills import tool_skills
from .conversion.states import AuthRequired, InputRequired, Rejected
from .errors import A2AError
from .fasta2a.worker import AgentWorker
from .settings import (
    Access,
    Approvals,
    Budget,
    Limits,
    Messages,
    Progress,
    Push,
    Quotas,
    Rate,
    Results,
    Retention,
    Workers,
)
from .types import Caller

__all__ = (
    'A2AApp',
    'A2AError',
    'APIKeyAuth',
    'Access',
    'AgentWorker',
    'AllOf',
    'Approvals',
    'Artifacts',
    'AuthRequired',
    'Authenticator',
    'BearerAuth',
    'Budget',
    'CallContext',
    'Caller',
    'InputRequired',
    'InvalidCredentials',
    'JWTAuth',
    'Limits',
    'Messages',
    'Postgres',
    'Progress',
    'Push',
    'Quotas',
    'Rate',
    'Rejected',
    'RequestInfo',
    'Results',
    'Retention',
    'RunFailure',
    'RunOptions',
    'Server',
    'StarletteAuth',
    'Workers',
    'hash_key',
    'mount',
    'run',
    'serve',
    'to_a2a',
    'tool_skills',
)

attach()
