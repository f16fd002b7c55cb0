"""Serve any Pydantic AI agent over A2A (Agent2Agent): `to_a2a(agent)`.

Importing the package also makes `agent.to_a2a()` work on every agent.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from .app.attach import attach

if TYPE_CHECKING:
    from .agent.current_task import CurrentTask, a2a
    from .agent.dependencies import CallContext
    from .agent.hooks import RunFailure, ToolCall, ToolResult
    from .agent.options import RunOptions
    from .app.app import A2AApp
    from .app.build import to_a2a
    from .app.catalogue import catalogue
    from .app.mount import mount
    from .app.serve import Server, run, serve
    from .app.serve_grpc import serve_grpc
    from .auth.api_key import APIKeyAuth
    from .auth.base import AllOf, Authenticator
    from .auth.bearer import BearerAuth
    from .auth.hashes import hash_key
    from .auth.jwt import JWTAuth
    from .auth.request import InvalidCredentials, RequestInfo
    from .auth.starlette import StarletteAuth
    from .backends.postgres.settings import Postgres
    from .client.assembly import Update
    from .client.client import A2AClient
    from .client.client_credentials import ClientCredentials
    from .client.notifications import Notification, NotificationVerifier
    from .client.trust import TrustedKeys
    from .conversion.outbound import Artifacts
    from .conversion.skills import tool_skills
    from .conversion.states import AuthRequired, InputRequired, NoCredential, Rejected
    from .conversion.typed_input import NoInput
    from .errors import (
        A2AError,
        CardRefused,
        CardUnverified,
        NotificationRefused,
        RemoteError,
        RemoteProtocolError,
        RemoteUnavailable,
        TokenRefused,
    )
    from .fasta2a.worker import AgentWorker
    from .remote.agent import RemoteAgent
    from .remote.capability import A2A
    from .remote.events import A2ATaskEvent, RemoteTaskEvent
    from .remote.model import A2AModel
    from .remote.results import remote_results
    from .remote.toolset import A2AToolset
    from .settings import (
        TLS,
        Access,
        Approvals,
        Budget,
        Credential,
        Credentials,
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
    from .types import Caller, WaitingTask

__all__ = (
    'A2A',
    'TLS',
    'A2AApp',
    'A2AClient',
    'A2AError',
    'A2AModel',
    'A2ATaskEvent',
    'A2AToolset',
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
    'CardRefused',
    'CardUnverified',
    'ClientCredentials',
    'Credential',
    'Credentials',
    'CurrentTask',
    'InputRequired',
    'InvalidCredentials',
    'JWTAuth',
    'Limits',
    'Messages',
    'NoCredential',
    'NoInput',
    'Notification',
    'NotificationRefused',
    'NotificationVerifier',
    'Postgres',
    'Progress',
    'Push',
    'Quotas',
    'Rate',
    'Rejected',
    'RemoteAgent',
    'RemoteError',
    'RemoteProtocolError',
    'RemoteTaskEvent',
    'RemoteUnavailable',
    'RequestInfo',
    'Results',
    'Retention',
    'RunFailure',
    'RunOptions',
    'Server',
    'StarletteAuth',
    'TokenRefused',
    'ToolCall',
    'ToolResult',
    'TrustedKeys',
    'Update',
    'WaitingTask',
    'Workers',
    'a2a',
    'catalogue',
    'hash_key',
    'mount',
    'remote_results',
    'run',
    'serve',
    'serve_grpc',
    'to_a2a',
    'tool_skills',
)

_MODULES = {
    'A2A': '.remote.capability',
    'A2AApp': '.app.app',
    'A2AClient': '.client.client',
    'A2AError': '.errors',
    'A2AModel': '.remote.model',
    'A2ATaskEvent': '.remote.events',
    'A2AToolset': '.remote.toolset',
    'APIKeyAuth': '.auth.api_key',
    'Access': '.settings',
    'AgentWorker': '.fasta2a.worker',
    'AllOf': '.auth.base',
    'Approvals': '.settings',
    'Artifacts': '.conversion.outbound',
    'AuthRequired': '.conversion.states',
    'Authenticator': '.auth.base',
    'BearerAuth': '.auth.bearer',
    'Budget': '.settings',
    'CallContext': '.agent.dependencies',
    'Caller': '.types',
    'Credential': '.settings',
    'Credentials': '.settings',
    'CardRefused': '.errors',
    'ClientCredentials': '.client.client_credentials',
    'CardUnverified': '.errors',
    'CurrentTask': '.agent.current_task',
    'InputRequired': '.conversion.states',
    'InvalidCredentials': '.auth.request',
    'JWTAuth': '.auth.jwt',
    'Limits': '.settings',
    'Messages': '.settings',
    'Postgres': '.backends.postgres.settings',
    'Progress': '.settings',
    'Push': '.settings',
    'Quotas': '.settings',
    'Rate': '.settings',
    'NoCredential': '.conversion.states',
    'NoInput': '.conversion.typed_input',
    'Notification': '.client.notifications',
    'NotificationRefused': '.errors',
    'NotificationVerifier': '.client.notifications',
    'Rejected': '.conversion.states',
    'RemoteAgent': '.remote.agent',
    'RemoteError': '.errors',
    'RemoteProtocolError': '.errors',
    'RemoteTaskEvent': '.remote.events',
    'RemoteUnavailable': '.errors',
    'RequestInfo': '.auth.request',
    'Results': '.settings',
    'Retention': '.settings',
    'RunFailure': '.agent.hooks',
    'RunOptions': '.agent.options',
    'Server': '.app.serve',
    'StarletteAuth': '.auth.starlette',
    'TokenRefused': '.errors',
    'TLS': '.settings',
    'ToolCall': '.agent.hooks',
    'ToolResult': '.agent.hooks',
    'TrustedKeys': '.client.trust',
    'Update': '.client.assembly',
    'WaitingTask': '.types',
    'Workers': '.settings',
    'a2a': '.agent.current_task',
    'catalogue': '.app.catalogue',
    'hash_key': '.auth.hashes',
    'mount': '.app.mount',
    'remote_results': '.remote.results',
    'run': '.app.serve',
    'serve': '.app.serve',
    'serve_grpc': '.app.serve_grpc',
    'to_a2a': '.app.build',
    'tool_skills': '.conversion.skills',
}
"""The modules of the public names. A module is loaded at the first use of its name, so that the import is short."""


def __getattr__(name: str) -> object:
    """Return a public name, and keep it."""
    if name not in _MODULES:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    value = globals()[name] = getattr(import_module(_MODULES[name], __name__), name)
    return value


def __dir__() -> list[str]:
    """Return the names of the package, also the public names that are not loaded yet."""
    return sorted(globals().keys() | _MODULES.keys())


attach()
