"""The vocabulary: plain values that pass between the rooms.

Messages, artifacts and events are stored as their A2A 1.0 JSON, the bytes that 1.0 sends, so that a look-up joins
bytes. Times are integers, milliseconds since the epoch, UTC.

The rooms import a value from its module. The names below are for users.
"""

from __future__ import annotations

from .a2a_objects import (
    AgentCapabilities,
    AgentCard,
    AgentExtension,
    AgentInterface,
    AgentProvider,
    ApiKeySecurityScheme,
    Artifact,
    HttpSecurityScheme,
    ListTaskPushNotificationConfigResult,
    ListTasksResult,
    Message,
    OAuth2SecurityScheme,
    OAuthFlows,
    OpenIdConnectSecurityScheme,
    Part,
    SecurityRequirement,
    SecurityScheme,
    Skill,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskPushNotificationConfig,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from .callers import ANONYMOUS, Caller
from .operation_params import (
    CancelParams,
    CardParams,
    CreatePushParams,
    GetParams,
    ListParams,
    ListPushParams,
    PushParams,
    SendParams,
    SubscribeParams,
)
from .run_events import Note, PartialArtifact, Step, TextDelta, ToolArtifact
from .service_calls import Call
from .signing_keys import Key
from .stored_events import TaskEvent
from .stored_tasks import StoredTask, TaskHeader
from .task_queries import Page, TaskQuery
from .waiting_approvals import WaitingCall, WaitingTask
from .webhook_targets import PushTarget, Registered

__all__ = [
    'ANONYMOUS',
    'AgentCapabilities',
    'AgentCard',
    'AgentExtension',
    'AgentInterface',
    'AgentProvider',
    'ApiKeySecurityScheme',
    'Artifact',
    'Call',
    'Caller',
    'CancelParams',
    'CardParams',
    'CreatePushParams',
    'GetParams',
    'HttpSecurityScheme',
    'Key',
    'ListParams',
    'ListPushParams',
    'ListTaskPushNotificationConfigResult',
    'ListTasksResult',
    'Message',
    'Note',
    'OAuth2SecurityScheme',
    'OAuthFlows',
    'OpenIdConnectSecurityScheme',
    'Page',
    'Part',
    'PartialArtifact',
    'PushParams',
    'PushTarget',
    'Registered',
    'SecurityRequirement',
    'SecurityScheme',
    'SendParams',
    'Skill',
    'Step',
    'StoredTask',
    'StreamResponse',
    'SubscribeParams',
    'Task',
    'TaskArtifactUpdateEvent',
    'TaskEvent',
    'TaskHeader',
    'TaskPushNotificationConfig',
    'TaskQuery',
    'TaskState',
    'TaskStatus',
    'TaskStatusUpdateEvent',
    'TextDelta',
    'ToolArtifact',
    'WaitingCall',
    'WaitingTask',
]
