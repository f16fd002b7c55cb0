"""A message to a remote agent, and the options of the message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast
from uuid import uuid4

from fasta2a.schema import AgentCard, Message, Part, TaskPushNotificationConfig
from pydantic_ai.tools import ToolDefinition
from typing_extensions import TypedDict

from ..conversion.schemas import CLIENT_TOOLS_URI as CLIENT_TOOLS
from ..conversion.schemas import metadata_of
from ..errors import UnsupportedOperationError
from ..types import PushTarget, SendParams
from .cards import extensions_of
from .schemas import OutputSchema, wanting

__all__ = ('Content', 'SendOptions', 'message_of', 'push_target', 'send_params')

Content: TypeAlias = str | Sequence[Part] | Message
"""A message to an agent: text, parts, or a whole message."""


class SendOptions(TypedDict, total=False):
    """Options of a message."""

    context_id: str
    """Conversation of the message. Default: a new conversation."""
    task_id: str
    """Task that the message continues or answers. Default: a new task."""
    metadata: dict[str, Any]
    """Metadata of the request. Default: none."""
    accepted_output_modes: Sequence[str]
    """Media types that the caller can read. Default: all."""
    extensions: Sequence[str]
    """URIs of protocol extensions to activate (§4.6). Default: none."""
    tools: Sequence[ToolDefinition]
    """Tools that the agent may call in the task of the message, instead of the tools of earlier messages. The caller
    answers the calls. Default: the tools of earlier messages."""
    push: TaskPushNotificationConfig
    """A webhook for the events of the task (§4.3.1). Default: none."""
    output_schema: OutputSchema
    """The form of the answer: a Pydantic model or another type, or a JSON Schema of an object. The answer is then data.
    For agents that declare the extension `client-schema-v1`. Default: as the agent answers."""
    resend: bool
    """True to send the message again, with the same id, if no answer has come. Agents of this package recognise a
    repeated message without this option; other agents may start a second task. Default False."""


def message_of(content: Content) -> Message:
    """Return the user's message, with an id."""
    if isinstance(content, Mapping):
        return cast('Message', {'message_id': uuid4().hex, 'role': 'user', **content})
    parts = [Part(text=content)] if isinstance(content, str) else [*content]
    return Message(role='user', parts=parts, message_id=uuid4().hex)


def send_params(message: Message, options: SendOptions, card: AgentCard, tenant: str) -> SendParams:
    """Return the params that send a message with its options.

    Raises:
        UnsupportedOperationError: The agent takes no tools, or no JSON Schemas of clients.
    """
    if (output := options.get('output_schema')) is not None:
        message = wanting(card, message, output)
    for name in ('context_id', 'task_id'):
        if value := options.get(name):
            message[name] = value
    extensions = tuple(options.get('extensions', ()))
    if (tools := options.get('tools')) is not None:
        if CLIENT_TOOLS not in extensions_of(card):
            raise UnsupportedOperationError(
                f'The agent takes no tools of clients: its card does not declare the extension {CLIENT_TOOLS}.'
            )
        message['metadata'] = {**message.get('metadata', {}), **metadata_of(tools)}
        extensions += (CLIENT_TOOLS,)
    push = options.get('push')
    return SendParams(
        message=message,
        accepted_output_modes=tuple(options.get('accepted_output_modes', ())),
        push_config=None if push is None else push_target(push),
        metadata=options.get('metadata'),
        extensions=extensions,
        tenant=tenant,
    )


def push_target(config: TaskPushNotificationConfig) -> PushTarget:
    """Return a webhook as the protocol sends the webhook."""
    authentication = config.get('authentication')
    return PushTarget(
        id=config.get('id', ''),
        url=config['url'],
        token=config.get('token'),
        scheme=None if authentication is None else authentication['scheme'],
        credentials=None if authentication is None else authentication.get('credentials'),
    )
