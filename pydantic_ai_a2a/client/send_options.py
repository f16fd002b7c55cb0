"""The options of a message to a remote agent."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic import TypeAdapter
from pydantic_ai.messages import BinaryContent, FileUrl
from pydantic_ai.tools import ToolDefinition
from typing_extensions import TypedDict, TypeForm, TypeVar

from ..errors import UnsupportedOperationError
from ..types.a2a_objects import AgentCard, Message, TaskPushNotificationConfig
from ..types.operation_params import SendParams
from ..wire.extensions.client_schema import CLIENT_SCHEMA_URI, usable_schema, with_client_schema
from ..wire.extensions.client_tools import CLIENT_TOOLS_URI, metadata_of
from ..wire.extensions.pending_calls_extension import PENDING_CALLS_URI, without_question
from ..wire.protocol.push_targets import read_target
from .interfaces import extensions_of

OutputT = TypeVar('OutputT', default=Any)
if TYPE_CHECKING:
    OutputType: TypeAlias = type[OutputT] | TypeForm[OutputT]
    """A type for the output of an answer, such as a model or a union."""
else:  # the checks of arguments would take any value for a `TypeForm`
    OutputType: TypeAlias = type[OutputT]
NO_TYPE: type[Any] | None = None
"""None as the default of an `OutputType`, for outputs of any type: of the literal None, pyright would conclude None."""


class SendOptions(TypedDict, total=False):
    """Options of a message."""

    context_id: str | None
    """Conversation of the message. Default: a new conversation."""
    task_id: str | None
    """Task that the message continues or answers. Default: a new task."""
    reference_task_ids: list[str]
    """Earlier tasks whose results the agent gets with the message. Default: none."""
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
    resend: bool
    """True to send the message again, with the same id, if no answer has come. Agents of this package recognise a
    repeated message without this option; other agents may start a second task. Default False."""


class WaitOptions(SendOptions, total=False):
    """Options of a message whose answer is waited for."""

    history_length: int | None
    """Most messages in the returned task. Default: as the agent decides."""
    return_immediately: bool
    """True to get the task as soon as the agent has stored the task. Default False."""
    max_wait: float | timedelta | None
    """Seconds of the whole call, after which the task is returned as it is. The task goes on. Default: no limit."""


def send_params(
    message: Message,
    options: SendOptions,
    card: AgentCard,
    output_type: type[Any] | None,
    adapter: TypeAdapter[Any] | None,
) -> SendParams:
    """Return the params that send a message with its options.

    Args:
        message: The message.
        options: Its options.
        card: The card of the agent.
        output_type: Type of the output that the client wants; None for any output.
        adapter: The adapter of the type.

    Raises:
        UnsupportedOperationError: The agent takes no tools of clients.
    """
    is_file = isinstance(output_type, type) and issubclass(output_type, BinaryContent | FileUrl)
    schema = None
    if adapter is not None and not is_file and CLIENT_SCHEMA_URI in extensions_of(card):
        schema = usable_schema(adapter.json_schema())
    if schema is not None:
        message = with_client_schema(message, schema)
    if PENDING_CALLS_URI not in extensions_of(card):
        message = without_question(message)
    for name in ('context_id', 'task_id', 'reference_task_ids'):
        if value := options.get(name):
            message[name] = value
    extensions = tuple(options.get('extensions', ()))
    if (tools := options.get('tools')) is not None:
        if CLIENT_TOOLS_URI not in extensions_of(card):
            raise UnsupportedOperationError(
                f'The agent takes no tools of clients: its card does not declare the extension {CLIENT_TOOLS_URI}.'
            )
        message['metadata'] = {**message.get('metadata', {}), **metadata_of(tools)}
        extensions += (CLIENT_TOOLS_URI,)
    push = options.get('push')
    return SendParams(
        message=message,
        accepted_output_modes=tuple(options.get('accepted_output_modes', ())),
        push_config=None if push is None else read_target(push),
        metadata=options.get('metadata'),
        extensions=extensions,
    )
