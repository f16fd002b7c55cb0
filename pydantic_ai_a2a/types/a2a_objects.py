"""The objects of A2A as TypedDicts: messages, parts, artifacts, tasks, events and the agent card.

Names and TypedDicts are FastA2A's where `fasta2a.schema` agrees with A2A 1.0. It differs from 1.0 in: roles and states
(`user`, `input-required` for `ROLE_USER`, `TASK_STATE_INPUT_REQUIRED`), `SecurityRequirement.schemes` (a list of scopes
for `{"list": [...]}`), `MessageSendConfiguration` (`blocking` for `returnImmediately`; `accepted_output_modes`
required), the push configuration methods' names, and `ListTasksResult` (all optional). The codecs translate these.
"""

from __future__ import annotations

# What the package uses of FastA2A outside `fasta2a` and `app`: other rooms import it from here.
from fasta2a.schema import AgentCapabilities as AgentCapabilities
from fasta2a.schema import AgentCard as AgentCard
from fasta2a.schema import AgentExtension as AgentExtension
from fasta2a.schema import AgentInterface as AgentInterface
from fasta2a.schema import AgentProvider as AgentProvider
from fasta2a.schema import ApiKeySecurityScheme as ApiKeySecurityScheme
from fasta2a.schema import Artifact as Artifact
from fasta2a.schema import HttpSecurityScheme as HttpSecurityScheme
from fasta2a.schema import ListTaskPushNotificationConfigResult as ListTaskPushNotificationConfigResult
from fasta2a.schema import ListTasksResult as ListTasksResult
from fasta2a.schema import Message as Message
from fasta2a.schema import OAuth2SecurityScheme as OAuth2SecurityScheme
from fasta2a.schema import OAuthFlows as OAuthFlows
from fasta2a.schema import OpenIdConnectSecurityScheme as OpenIdConnectSecurityScheme
from fasta2a.schema import Part as Part
from fasta2a.schema import SecurityRequirement as SecurityRequirement
from fasta2a.schema import SecurityScheme as SecurityScheme
from fasta2a.schema import Skill as Skill
from fasta2a.schema import StreamResponse as StreamResponse
from fasta2a.schema import Task as Task
from fasta2a.schema import TaskArtifactUpdateEvent as TaskArtifactUpdateEvent
from fasta2a.schema import TaskPushNotificationConfig as TaskPushNotificationConfig
from fasta2a.schema import TaskState as TaskState
from fasta2a.schema import TaskStatus as TaskStatus
from fasta2a.schema import TaskStatusUpdateEvent as TaskStatusUpdateEvent
from fasta2a.schema import agent_card_ta as agent_card_ta
from fasta2a.worker import Worker as Worker
