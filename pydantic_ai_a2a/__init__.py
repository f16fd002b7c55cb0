"""Serve any Pydantic AI agent over A2A (Agent2Agent): `to_a2a(agent)`.

Importing the package also makes `agent.to_a2a()` work on every agent, also if Pydantic AI is imported afterwards.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from .app.agent_method import attach

if TYPE_CHECKING:
    from .agent.current_task import CurrentTask, a2a
    from .agent.dependencies import CallContext
    from .agent.hooks import RunFailure, ToolCall, ToolResult
    from .agent.run_options import RunOptions
    from .app.a2a_app import A2AApp
    from .app.catalogue_app import catalogue
    from .app.mount import mount
    from .app.serve import Server, run, serve
    from .app.serve_grpc import serve_grpc
    from .app.to_a2a import to_a2a
    from .auth.api_keys import APIKeyAuth
    from .auth.authenticator import AllOf, Authenticator
    from .auth.bearer_tokens import BearerAuth
    from .auth.hashed_secrets import hash_key
    from .auth.invalid_credentials import InvalidCredentials
    from .auth.jwt import JWTAuth
    from .auth.request_info import RequestInfo
    from .auth.starlette import StarletteAuth
    from .client.client import A2AClient, Conversation
    from .client.client_credentials import ClientCredentials
    from .client.notification_verifier import Notification, NotificationVerifier
    from .client.questions import PendingRemoteCall, RemoteQuestion
    from .client.results import RemoteResult
    from .client.trusted_keys import TrustedKeys
    from .client.updates import Update
    from .conversion.artifacts import Artifacts
    from .conversion.chosen_states import AuthRequired, InputRequired, NoCredential, Rejected
    from .conversion.skills import tool_skills
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
    from .fasta2a.agent_worker import AgentWorker
    from .remote.agent import RemoteAgent
    from .remote.capability import A2A
    from .remote.deferred_results import remote_results
    from .remote.model import A2AModel
    from .remote.task_events import A2ATaskEvent, RemoteTaskEvent
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
    from .store.postgres.settings import Postgres
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
    'Conversation',
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
    'PendingRemoteCall',
    'Postgres',
    'Progress',
    'Push',
    'Quotas',
    'Rate',
    'Rejected',
    'RemoteAgent',
    'RemoteError',
    'RemoteProtocolError',
    'RemoteQuestion',
    'RemoteResult',
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

_NAMES = {
    '.agent.current_task': ('CurrentTask', 'a2a'),
    '.agent.dependencies': ('CallContext',),
    '.agent.hooks': ('RunFailure', 'ToolCall', 'ToolResult'),
    '.agent.run_options': ('RunOptions',),
    '.app.a2a_app': ('A2AApp',),
    '.app.catalogue_app': ('catalogue',),
    '.app.mount': ('mount',),
    '.app.serve': ('Server', 'run', 'serve'),
    '.app.serve_grpc': ('serve_grpc',),
    '.app.to_a2a': ('to_a2a',),
    '.auth.api_keys': ('APIKeyAuth',),
    '.auth.authenticator': ('AllOf', 'Authenticator'),
    '.auth.bearer_tokens': ('BearerAuth',),
    '.auth.hashed_secrets': ('hash_key',),
    '.auth.invalid_credentials': ('InvalidCredentials',),
    '.auth.jwt': ('JWTAuth',),
    '.auth.request_info': ('RequestInfo',),
    '.auth.starlette': ('StarletteAuth',),
    '.client.client': ('A2AClient', 'Conversation'),
    '.client.client_credentials': ('ClientCredentials',),
    '.client.notification_verifier': ('Notification', 'NotificationVerifier'),
    '.client.questions': ('PendingRemoteCall', 'RemoteQuestion'),
    '.client.results': ('RemoteResult',),
    '.client.trusted_keys': ('TrustedKeys',),
    '.client.updates': ('Update',),
    '.conversion.artifacts': ('Artifacts',),
    '.conversion.chosen_states': ('AuthRequired', 'InputRequired', 'NoCredential', 'Rejected'),
    '.conversion.skills': ('tool_skills',),
    '.conversion.typed_input': ('NoInput',),
    '.errors': (
        'A2AError',
        'CardRefused',
        'CardUnverified',
        'NotificationRefused',
        'RemoteError',
        'RemoteProtocolError',
        'RemoteUnavailable',
        'TokenRefused',
    ),
    '.fasta2a.agent_worker': ('AgentWorker',),
    '.remote.agent': ('RemoteAgent',),
    '.remote.capability': ('A2A',),
    '.remote.deferred_results': ('remote_results',),
    '.remote.model': ('A2AModel',),
    '.remote.task_events': ('A2ATaskEvent', 'RemoteTaskEvent'),
    '.remote.toolset': ('A2AToolset',),
    '.settings': (
        'Access',
        'Approvals',
        'Budget',
        'Credential',
        'Credentials',
        'Limits',
        'Messages',
        'Progress',
        'Push',
        'Quotas',
        'Rate',
        'Results',
        'Retention',
        'TLS',
        'Workers',
    ),
    '.store.postgres.settings': ('Postgres',),
    '.types': ('Caller', 'WaitingTask'),
}
"""The public names by module. A module is loaded at the first use of its name, so that the import is short."""
_MODULES = {name: module for module, names in _NAMES.items() for name in names}


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
