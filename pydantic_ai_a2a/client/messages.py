"""The message to a remote agent: its content, and its options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from datetime import timedelta
from typing import Any, ClassVar, Protocol, TypeAlias, cast
from uuid import uuid4

from pydantic import BaseModel, TypeAdapter
from pydantic_ai.messages import BinaryContent, CachePoint, FileUrl, StructuredContent, TextContent, UploadedFile
from pydantic_ai.tools import ToolDefinition
from pydantic_core import to_jsonable_python
from typing_extensions import TypedDict

from ..conversion.outbound import file_part
from ..conversion.schemas import (
    CLIENT_SCHEMA_URI,
    CLIENT_TOOLS_URI,
    UnusableSchema,
    checked,
    metadata_of,
    with_client_schema,
)
from ..errors import UnsupportedOperationError
from ..protocol import stored
from ..protocol.push_params import read_target
from ..types import (
    AgentCard,
    Message,
    Part,
    SendParams,
    TaskPushNotificationConfig,
    as_object,
    dump_json,
)
from .cards import extensions_of


class Dataclass(Protocol):
    """Any dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


Content: TypeAlias = str | BaseModel | Dataclass | Mapping[str, Any] | Sequence[Any]
"""A message to an agent. A text; a file as `BinaryContent`, or as a URL such as `ImageUrl`; data as a dict, a list, a
Pydantic model or a dataclass; a list of these or of A2A's `Part`; or a whole `Message`."""

_TAKES = (
    'A message takes a text, data (a dict, a list, a Pydantic model or a dataclass), a file (BinaryContent or a URL '
    'such as ImageUrl), a list of these, or a Message, not {}.'
)


def message_of(content: Content) -> Message:
    """Return the user's message, with an id.

    Raises:
        TypeError: The content is none of what a message takes.
        ValueError: The message has fields that messages do not have.
    """
    if isinstance(content, Mapping) and _is_message(content):
        fields: Any = content
        if fields.get('role') in stored.ROLES:
            fields = stored.load_message(dump_json(content))
        if unknown := fields.keys() - Message.__annotations__.keys():
            raise ValueError(
                f'A message has no field {min(unknown)!r}: give a Message, or the JSON of a message of A2A 1.0.'
            )
        return cast('Message', {'message_id': uuid4().hex, 'role': 'user', **fields})
    return Message(role='user', parts=[*_parts(content)], message_id=uuid4().hex)


def _is_message(content: Mapping[str, Any]) -> bool:
    """Return True for a dict with a list of parts. Other dicts are data."""
    parts = content.get('parts')
    return isinstance(parts, list | tuple) and all(isinstance(part, Mapping) for part in cast('Sequence[Any]', parts))


def _parts(content: Content) -> Iterator[Part]:
    """Yield the parts of a content. A list without any text, file, model or part is data as a whole."""
    items = cast('Sequence[Any]', content) if isinstance(content, list | tuple) else ()
    if items and any(isinstance(item, str) or _is_part(item) or _is_object(item) for item in items):
        yield from (cast('Part', item) if _is_part(item) else part_of(item) for item in items)
    elif items or not isinstance(content, list | tuple):
        yield part_of(content)


def part_of(item: object) -> Part:
    """Return a text, a file or data as a part.

    Raises:
        TypeError: The item is none of these.
    """
    if isinstance(item, str):
        return Part(text=item)
    if isinstance(item, StructuredContent):
        return _data(item.value)
    if isinstance(item, TextContent):
        return Part(text=item.content)
    if isinstance(item, BinaryContent | FileUrl):
        return file_part(item)
    if isinstance(item, Mapping | list | tuple) or _is_object(item):
        return _data(cast('Any', item))
    raise TypeError(_TAKES.format(type(item).__name__))


def _is_part(item: object) -> bool:
    """Return True for a dict that is one of A2A's parts."""
    fields = as_object(item).keys()
    return bool(fields & {'text', 'data', 'raw', 'url'}) and fields <= Part.__annotations__.keys()


def _is_object(item: object) -> bool:
    """Return True for a model or a dataclass that can be sent. An uploaded file is known to its provider only."""
    is_one = isinstance(item, BaseModel) or (is_dataclass(item) and not isinstance(item, type))
    return is_one and not isinstance(item, UploadedFile | CachePoint)


def _data(value: object) -> Part:
    return Part(data=to_jsonable_python(value), media_type='application/json')


# --- options of a message ---------------------------------------------------------------------------------------------


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


def usable(schema: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a schema if the extension for schemas of clients supports the schema."""
    try:
        return None if schema is None else checked(schema, 'schema')
    except UnusableSchema:
        return None


def send_params(message: Message, options: SendOptions, card: AgentCard, output_type: type[Any] | None) -> SendParams:
    """Return the params that send a message with its options.

    Raises:
        UnsupportedOperationError: The agent takes no tools of clients.
    """
    is_file = isinstance(output_type, type) and issubclass(output_type, BinaryContent | FileUrl)
    schema = None
    if output_type is not None and not is_file and CLIENT_SCHEMA_URI in extensions_of(card):
        schema = usable(TypeAdapter[Any](output_type).json_schema())
    if schema is not None:
        message = with_client_schema(message, schema)
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
