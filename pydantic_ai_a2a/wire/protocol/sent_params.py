"""Writers of the params of requests, as clients send them: what the codecs decode."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from pydantic_core import from_json

from ...types.a2a_objects import Message
from ...types.operation_params import (
    CancelParams,
    CreatePushParams,
    GetParams,
    ListParams,
    ListPushParams,
    PushParams,
    SendParams,
    SubscribeParams,
)
from . import stored, stored_values
from .push_targets import set_fields, target_json


def _message(message: Message) -> dict[str, Any]:
    return from_json(stored_values.dump_message(message))


def _list_params(params: ListParams, state: Callable[[str], str]) -> dict[str, Any]:
    return set_fields(
        contextId=params.context_id,
        status=None if params.state is None else state(params.state),
        statusTimestampAfter=None if params.since is None else from_json(stored.timestamp(params.since)),
        pageSize=params.page_size,
        pageToken=params.page_token,
        historyLength=params.history_length,
        includeArtifacts=params.include_artifacts or None,
    )


def _params(params: Any) -> dict[str, Any]:
    """Return the params, without the tenant, that A2A 1.0 and FastA2A write alike."""
    if isinstance(params, GetParams):
        return set_fields(id=params.id, historyLength=params.history_length)
    if isinstance(params, CancelParams):
        return set_fields(id=params.id, metadata=params.metadata)
    if isinstance(params, SubscribeParams):
        return {'id': params.id}
    if isinstance(params, CreatePushParams):
        return {'taskId': params.task_id, **target_json(params.target)}
    if isinstance(params, PushParams):
        return set_fields(taskId=params.task_id, id=params.id)
    if isinstance(params, ListPushParams):
        return set_fields(taskId=params.task_id, pageSize=params.page_size, pageToken=params.page_token)
    return {}


def newer_params(params: Any) -> dict[str, Any]:
    """Return params as JSON values of A2A 1.0."""
    written = set_fields(tenant=params.tenant)
    if isinstance(params, SendParams):
        push = None if params.push_config is None else target_json(params.push_config)
        configuration = set_fields(
            acceptedOutputModes=params.accepted_output_modes,
            taskPushNotificationConfig=push,
            historyLength=params.history_length,
            returnImmediately=params.return_immediately or None,
        )
        written |= {'message': _message(params.message)}
        return written | set_fields(configuration=configuration or None, metadata=params.metadata)
    if isinstance(params, ListParams):
        return written | _list_params(params, lambda state: from_json(stored.STATE_NAMES[cast('Any', state)]))
    return written | _params(params)


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
        push = None if params.push_config is None else target_json(params.push_config, nested=nested)
        configuration = set_fields(
            blocking=not params.return_immediately, historyLength=params.history_length, **{push_field: push}
        )
        configuration['acceptedOutputModes'] = list(params.accepted_output_modes)
        sent = message(_message(params.message))
        return set_fields(message=sent, configuration=configuration, metadata=params.metadata)
    if isinstance(params, ListParams):
        return _list_params(params, str)
    if nested and isinstance(params, CreatePushParams):
        return {'taskId': params.task_id, 'pushNotificationConfig': target_json(params.target, nested=True)}
    if nested and isinstance(params, PushParams):
        return set_fields(id=params.task_id, pushNotificationConfigId=params.id)
    if nested and isinstance(params, ListPushParams):
        return {'id': params.task_id}
    return _params(params)
