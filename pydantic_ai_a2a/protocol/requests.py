"""Writers of the params of requests, as clients send them: what the codecs decode."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from pydantic_core import from_json

from ..types import (
    CancelParams,
    CreatePushParams,
    GetParams,
    ListParams,
    ListPushParams,
    Message,
    PushParams,
    PushTarget,
    SendParams,
    SubscribeParams,
)
from . import stored
from .push import target_fields

__all__ = ('newer_params', 'older_params')


def _written(**fields: object) -> dict[str, Any]:
    """Return the fields that are set."""
    return {name: value for name, value in fields.items() if value is not None and value not in ('', ())}


def _message(message: Message) -> dict[str, Any]:
    return from_json(stored.dump_message(message))


def _target(target: PushTarget) -> dict[str, Any]:
    return {**_written(id=target.id), **target_fields(target, {'scheme': target.scheme})}


def _nested_target(target: PushTarget) -> dict[str, Any]:
    return {**_written(id=target.id), **target_fields(target, {'schemes': [target.scheme]})}


def _list_params(params: ListParams, state: Callable[[str], str]) -> dict[str, Any]:
    return _written(
        contextId=params.context_id,
        status=None if params.state is None else state(params.state),
        statusTimestampAfter=None if params.since is None else from_json(stored.timestamp(params.since)),
        pageSize=params.page_size,
        pageToken=params.page_token,
        historyLength=params.history_length,
        includeArtifacts=params.include_artifacts or None,
    )


def _flat_push_params(params: object) -> dict[str, Any]:
    if isinstance(params, CreatePushParams):
        return {'taskId': params.task_id, **_target(params.target)}
    if isinstance(params, PushParams):
        return _written(taskId=params.task_id, id=params.id)
    listed = cast('ListPushParams', params)
    return _written(taskId=listed.task_id, pageSize=listed.page_size, pageToken=listed.page_token)


def newer_params(params: Any) -> dict[str, Any]:
    """Return params as JSON values of A2A 1.0."""
    written = _written(tenant=params.tenant)
    if isinstance(params, SendParams):
        push = None if params.push_config is None else _target(params.push_config)
        configuration = _written(
            acceptedOutputModes=params.accepted_output_modes,
            taskPushNotificationConfig=push,
            historyLength=params.history_length,
            returnImmediately=params.return_immediately or None,
        )
        written |= {'message': _message(params.message)}
        return written | _written(configuration=configuration or None, metadata=params.metadata)
    if isinstance(params, GetParams):
        return written | _written(id=params.id, historyLength=params.history_length)
    if isinstance(params, ListParams):
        return written | _list_params(params, lambda state: from_json(stored.STATE_NAMES[cast('Any', state)]))
    if isinstance(params, CancelParams):
        return written | _written(id=params.id, metadata=params.metadata)
    if isinstance(params, SubscribeParams):
        return written | {'id': params.id}
    if isinstance(params, (CreatePushParams, PushParams, ListPushParams)):
        return written | _flat_push_params(params)
    return written


def older_params(
    params: Any, message: Callable[[Mapping[str, Any]], dict[str, Any]], *, push_field: str, nested: bool
) -> dict[str, Any]:
    """Return params as JSON values of A2A 0.3 or of FastA2A's dialect.

    Args:
        params: The params. Tenants are left out, because these versions do not have tenants.
        message: Converts a message from its 1.0 JSON.
        push_field: Field of the configuration that holds a webhook.
        nested: True for 0.3, whose push notification configurations have a form of their own.
    """
    if isinstance(params, SendParams):
        target = params.push_config
        configuration = _written(
            blocking=not params.return_immediately,
            historyLength=params.history_length,
            **{push_field: None if target is None else (_nested_target if nested else _target)(target)},
        )
        configuration['acceptedOutputModes'] = list(params.accepted_output_modes)
        sent = message(_message(params.message))
        return _written(message=sent, configuration=configuration, metadata=params.metadata)
    if isinstance(params, (GetParams, CancelParams, SubscribeParams)):
        return _written(
            id=params.id,
            historyLength=params.history_length if isinstance(params, GetParams) else None,
            metadata=params.metadata if isinstance(params, CancelParams) else None,
        )
    if isinstance(params, ListParams):
        return _list_params(params, str)
    if isinstance(params, (CreatePushParams, PushParams, ListPushParams)):
        return _nested_push_params(params) if nested else _flat_push_params(params)
    return {}


def _nested_push_params(params: CreatePushParams | PushParams | ListPushParams) -> dict[str, Any]:
    if isinstance(params, CreatePushParams):
        return {'taskId': params.task_id, 'pushNotificationConfig': _nested_target(params.target)}
    if isinstance(params, PushParams):
        return _written(id=params.task_id, pushNotificationConfigId=params.id)
    return {'id': params.task_id}
