"""Serve any Pydantic AI agent over A2A (Agent2Agent): `to_a2a(agent)`.

Importing the package also makes `agent.to_a2a()` work on every agent, also if Pydantic AI is imported afterwards.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from .server.app.agent_method import attach

_NAMES = {
    '.client.agents.agent': ('RemoteAgent',),
    '.client.agents.capability': ('A2A',),
    '.client.agents.model': ('A2AModel',),
    '.client.agents.remote_results': ('remote_results',),
    '.client.agents.task_events': ('A2ATaskEvent', 'RemoteTaskEvent'),
    '.client.agents.toolset': ('A2AToolset',),
    '.client.client': ('A2AClient',),
    '.client.client_credentials': ('ClientCredentials',),
    '.client.conversation': ('Conversation',),
    '.client.notification_verifier': ('Notification', 'NotificationVerifier'),
    '.client.questions': ('PendingRemoteCall', 'RemoteQuestion'),
    '.client.results': ('RemoteResult',),
    '.client.trusted_keys': ('TrustedKeys',),
    '.client.updates': ('Update',),
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
    '.server.agent.call_context': ('CallContext',),
    '.server.agent.current_task': ('CurrentTask', 'a2a'),
    '.server.agent.hooks': ('OpenCall', 'RunFailure', 'TaskPause', 'ToolCall', 'ToolResult'),
    '.server.agent.run_options': ('RunOptions',),
    '.server.app.a2a_app': ('A2AApp',),
    '.server.app.catalogue_app': ('catalogue',),
    '.server.app.mount': ('mount',),
    '.server.app.serve': ('run', 'serve'),
    '.server.app.serve_grpc': ('serve_grpc',),
    '.server.app.threaded_server': ('Server',),
    '.server.app.to_a2a': ('to_a2a',),
    '.server.auth.api_keys': ('APIKeyAuth',),
    '.server.auth.authenticator': ('AllOf', 'Authenticator'),
    '.server.auth.bearer_tokens': ('BearerAuth',),
    '.server.auth.hashed_secrets': ('hash_key',),
    '.server.auth.invalid_credentials': ('InvalidCredentials',),
    '.server.auth.jwt': ('JWTAuth',),
    '.server.auth.request_info': ('RequestInfo',),
    '.server.auth.starlette': ('StarletteAuth',),
    '.server.conversion.artifacts': ('Artifacts',),
    '.server.conversion.chosen_states': ('AuthRequired', 'InputRequired', 'NoCredential', 'Rejected'),
    '.server.conversion.skills': ('tool_skills',),
    '.server.conversion.typed_input': ('NoInput',),
    '.server.fasta2a.agent_worker': ('AgentWorker',),
    '.server.store.postgres.settings': ('Postgres',),
    '.settings.access': ('Access',),
    '.settings.approvals': ('Approvals',),
    '.settings.budgets': ('Budget',),
    '.settings.credentials': ('Credential', 'Credentials'),
    '.settings.limits': ('Limits',),
    '.settings.messages': ('Messages',),
    '.settings.progress': ('Progress',),
    '.settings.push': ('Push',),
    '.settings.quotas': ('Quotas',),
    '.settings.rate_limits': ('Rate',),
    '.settings.results': ('Results',),
    '.settings.retention': ('Retention',),
    '.settings.tls': ('TLS',),
    '.settings.workers': ('Workers',),
    '.types.callers': ('Caller',),
    '.types.waiting_approvals': ('WaitingCall', 'WaitingTask'),
}
"""The public names by module. A module is loaded at the first use of its name, so that the import is short."""
_MODULES = {name: module for module, names in _NAMES.items() for name in names}

if TYPE_CHECKING:  # a name that is imported as itself is public for type checkers
    from .client.agents.agent import RemoteAgent as RemoteAgent
    from .client.agents.capability import A2A as A2A
    from .client.agents.model import A2AModel as A2AModel
    from .client.agents.remote_results import remote_results as remote_results
    from .client.agents.task_events import A2ATaskEvent as A2ATaskEvent
    from .client.agents.task_events import RemoteTaskEvent as RemoteTaskEvent
    from .client.agents.toolset import A2AToolset as A2AToolset
    from .client.client import A2AClient as A2AClient
    from .client.client_credentials import ClientCredentials as ClientCredentials
    from .client.conversation import Conversation as Conversation
    from .client.notification_verifier import Notification as Notification
    from .client.notification_verifier import NotificationVerifier as NotificationVerifier
    from .client.questions import PendingRemoteCall as PendingRemoteCall
    from .client.questions import RemoteQuestion as RemoteQuestion
    from .client.results import RemoteResult as RemoteResult
    from .client.trusted_keys import TrustedKeys as TrustedKeys
    from .client.updates import Update as Update
    from .errors import A2AError as A2AError
    from .errors import CardRefused as CardRefused
    from .errors import CardUnverified as CardUnverified
    from .errors import NotificationRefused as NotificationRefused
    from .errors import RemoteError as RemoteError
    from .errors import RemoteProtocolError as RemoteProtocolError
    from .errors import RemoteUnavailable as RemoteUnavailable
    from .errors import TokenRefused as TokenRefused
    from .server.agent.call_context import CallContext as CallContext
    from .server.agent.current_task import CurrentTask as CurrentTask
    from .server.agent.current_task import a2a as a2a
    from .server.agent.hooks import OpenCall as OpenCall
    from .server.agent.hooks import RunFailure as RunFailure
    from .server.agent.hooks import TaskPause as TaskPause
    from .server.agent.hooks import ToolCall as ToolCall
    from .server.agent.hooks import ToolResult as ToolResult
    from .server.agent.run_options import RunOptions as RunOptions
    from .server.app.a2a_app import A2AApp as A2AApp
    from .server.app.catalogue_app import catalogue as catalogue
    from .server.app.mount import mount as mount
    from .server.app.serve import run as run
    from .server.app.serve import serve as serve
    from .server.app.serve_grpc import serve_grpc as serve_grpc
    from .server.app.threaded_server import Server as Server
    from .server.app.to_a2a import to_a2a as to_a2a
    from .server.auth.api_keys import APIKeyAuth as APIKeyAuth
    from .server.auth.authenticator import AllOf as AllOf
    from .server.auth.authenticator import Authenticator as Authenticator
    from .server.auth.bearer_tokens import BearerAuth as BearerAuth
    from .server.auth.hashed_secrets import hash_key as hash_key
    from .server.auth.invalid_credentials import InvalidCredentials as InvalidCredentials
    from .server.auth.jwt import JWTAuth as JWTAuth
    from .server.auth.request_info import RequestInfo as RequestInfo
    from .server.auth.starlette import StarletteAuth as StarletteAuth
    from .server.conversion.artifacts import Artifacts as Artifacts
    from .server.conversion.chosen_states import AuthRequired as AuthRequired
    from .server.conversion.chosen_states import InputRequired as InputRequired
    from .server.conversion.chosen_states import NoCredential as NoCredential
    from .server.conversion.chosen_states import Rejected as Rejected
    from .server.conversion.skills import tool_skills as tool_skills
    from .server.conversion.typed_input import NoInput as NoInput
    from .server.fasta2a.agent_worker import AgentWorker as AgentWorker
    from .server.store.postgres.settings import Postgres as Postgres
    from .settings.access import Access as Access
    from .settings.approvals import Approvals as Approvals
    from .settings.budgets import Budget as Budget
    from .settings.credentials import Credential as Credential
    from .settings.credentials import Credentials as Credentials
    from .settings.limits import Limits as Limits
    from .settings.messages import Messages as Messages
    from .settings.progress import Progress as Progress
    from .settings.push import Push as Push
    from .settings.quotas import Quotas as Quotas
    from .settings.rate_limits import Rate as Rate
    from .settings.results import Results as Results
    from .settings.retention import Retention as Retention
    from .settings.tls import TLS as TLS
    from .settings.workers import Workers as Workers
    from .types.callers import Caller as Caller
    from .types.waiting_approvals import WaitingCall as WaitingCall
    from .types.waiting_approvals import WaitingTask as WaitingTask
else:  # with `__getattr__`, type checkers would accept any name
    __all__ = tuple(_MODULES)

    def __getattr__(name: str) -> object:
        """Return a public name, and keep it."""
        if name in ('A2AServer', 'FastA2A'):
            raise ImportError(f'{__name__!r} has no {name!r}: write `from pydantic_ai_a2a import to_a2a`.')
        if name not in _MODULES:
            raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
        value = globals()[name] = getattr(import_module(_MODULES[name], __name__), name)
        return value


def __dir__() -> list[str]:
    """Return the names of the package, also the public names that are not loaded yet."""
    return sorted(globals().keys() | _MODULES.keys())


attach()
