"""The operations of A2A as one table, for codecs, bindings, scopes and quotas.

A new operation needs a row here, params in `types`, decoding in the codecs, and a method of the service.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Literal

from ...types.frozen_values import frozen
from ...types.operation_params import (
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

Capability = Literal['streaming', 'pushNotifications', 'extendedAgentCard']
"""A capability of the agent card, by the name on the card (§4.4.3)."""

Params = (
    SendParams
    | GetParams
    | ListParams
    | CancelParams
    | SubscribeParams
    | CreatePushParams
    | PushParams
    | ListPushParams
    | CardParams
)
"""The decoded params of an operation."""

_SEND = 'SendMessage'
_GET = 'GetTask'
_CREATE = 'CreateTaskPushNotificationConfig'
_CONFIGS = '/tasks/{id}/pushNotificationConfigs'
_CONFIG = f'{_CONFIGS}/{{configId}}'


@frozen
class Operation:
    """One operation of the protocol (§3.1)."""

    name: str
    """Method name in A2A 1.0."""
    v0_3: str = ''
    """Method name in A2A 0.3; empty for none."""
    fasta2a: str = ''
    """Method name in FastA2A's dialect; empty for none."""
    http: tuple[tuple[str, str], ...]
    """Verbs and paths of the HTTP+JSON binding, relative to the interface's URL (§11.3)."""
    params: type[Any]
    """Type of the decoded params."""
    service: str = ''
    """Name of the service's method; empty for the card, which needs no task."""
    write: Callable[[Any, Any], Iterable[bytes]] | None = None
    """Writes the pieces of the answer from a codec and the result; None for streams and for the card."""
    stream: bool = False
    """True if the answer is a stream of events."""
    capability: Capability | None = None
    """Required capability of the agent card (§3.3.4)."""
    scopes_of: str = ''
    """The operation whose scopes are needed for an operation without scopes: no way around the scopes."""
    counts_as: str = ''
    """The operation whose rate applies to an operation without a rate: no doubled rate for the caller."""
    lists: bool = False
    """True if the answer shows tasks that the caller does not name."""


_ALL = (
    Operation(
        name=_SEND,
        v0_3='message/send',
        fasta2a='message/send',
        http=(('POST', '/message:send'),),
        params=SendParams,
        service='send_message',
        write=lambda codec, task: codec.result_pieces(task),
    ),
    Operation(
        name='SendStreamingMessage',
        v0_3='message/stream',
        fasta2a='message/stream',
        http=(('POST', '/message:stream'),),
        params=SendParams,
        service='stream_message',
        stream=True,
        capability='streaming',
        scopes_of=_SEND,
        counts_as=_SEND,
    ),
    Operation(
        name=_GET,
        v0_3='tasks/get',
        fasta2a='tasks/get',
        http=(('GET', '/tasks/{id}'),),
        params=GetParams,
        service='get_task',
        write=lambda codec, task: codec.task_pieces(task),
    ),
    Operation(
        name='ListTasks',
        fasta2a='tasks/list',
        http=(('GET', '/tasks'),),
        params=ListParams,
        service='list_tasks',
        write=lambda codec, tasks: codec.page_pieces(
            tasks.page, page_size=tasks.page_size, next_page_token=tasks.next_page_token
        ),
        scopes_of=_GET,
        counts_as=_GET,
        lists=True,
    ),
    Operation(
        name='CancelTask',
        v0_3='tasks/cancel',
        fasta2a='tasks/cancel',
        http=(('POST', '/tasks/{id}:cancel'),),
        params=CancelParams,
        service='cancel_task',
        write=lambda codec, task: codec.task_pieces(task),
    ),
    Operation(
        name='SubscribeToTask',
        v0_3='tasks/resubscribe',
        fasta2a='tasks/resubscribe',
        # The specification's text says POST, its a2a.proto says GET.
        http=(('POST', '/tasks/{id}:subscribe'), ('GET', '/tasks/{id}:subscribe')),
        params=SubscribeParams,
        service='subscribe_to_task',
        stream=True,
        capability='streaming',
        scopes_of=_GET,
        counts_as=_GET,
    ),
    Operation(
        name=_CREATE,
        v0_3='tasks/pushNotificationConfig/set',
        fasta2a='tasks/pushNotification/set',
        http=(('POST', _CONFIGS),),
        params=CreatePushParams,
        service='create_push_config',
        write=lambda codec, config: (codec.encode_push_config(config),),
        capability='pushNotifications',
    ),
    Operation(
        name='GetTaskPushNotificationConfig',
        v0_3='tasks/pushNotificationConfig/get',
        fasta2a='tasks/pushNotification/get',
        http=(('GET', _CONFIG),),
        params=PushParams,
        service='get_push_config',
        write=lambda codec, config: (codec.encode_push_config(config),),
        capability='pushNotifications',
        scopes_of=_CREATE,
    ),
    Operation(
        name='ListTaskPushNotificationConfigs',
        v0_3='tasks/pushNotificationConfig/list',
        fasta2a='tasks/pushNotificationConfig/list',
        http=(('GET', _CONFIGS),),
        params=ListPushParams,
        service='list_push_configs',
        write=lambda codec, configs: (codec.encode_push_configs(*configs),),
        capability='pushNotifications',
        scopes_of=_CREATE,
    ),
    Operation(
        name='DeleteTaskPushNotificationConfig',
        v0_3='tasks/pushNotificationConfig/delete',
        fasta2a='tasks/pushNotificationConfig/delete',
        http=(('DELETE', _CONFIG),),
        params=PushParams,
        service='delete_push_config',
        write=lambda codec, _: (codec.encode_deleted(),),
        capability='pushNotifications',
        scopes_of=_CREATE,
    ),
    Operation(
        name='GetExtendedAgentCard',
        v0_3='agent/getAuthenticatedExtendedCard',
        http=(('GET', '/extendedAgentCard'),),
        params=CardParams,
        capability='extendedAgentCard',
    ),
)


OPERATIONS: Mapping[str, Operation] = MappingProxyType({operation.name: operation for operation in _ALL})
"""Every operation of A2A 1.0, served or not, by its method name."""
