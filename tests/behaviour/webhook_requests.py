"""The operations on push notification configurations, in 1.0's shapes on this side and the test's version on the wire.

What 0.3 writes and reads goes through the official models.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from a2a.compat.v0_3 import conversions, types
from a2a.types import TaskPushNotificationConfig
from google.protobuf.json_format import MessageToDict, ParseDict

from ..app_client import Client, RpcError, rpc

Json = dict[str, Any]

_RESULTS: Mapping[str, type[Any]] = {
    'Create': types.SetTaskPushNotificationConfigSuccessResponse,
    'Get': types.GetTaskPushNotificationConfigSuccessResponse,
    'List': types.ListTaskPushNotificationConfigSuccessResponse,
    'Delete': types.DeleteTaskPushNotificationConfigSuccessResponse,
}


async def create_config(client: Client, task_id: str, **target: Any) -> Json:
    return await _call(client, 'Create', taskId=task_id, **target)


async def get_config(client: Client, task_id: str, config_id: str | None) -> Json:
    """One configuration of a task; only 0.3 takes a request without an id."""
    return await _call(client, 'Get', taskId=task_id, **({} if config_id is None else {'id': config_id}))


async def list_configs(client: Client, task_id: str) -> list[Json]:
    """All configurations of a task."""
    return await _call(client, 'List', taskId=task_id)


async def delete_config(client: Client, task_id: str, config_id: str) -> None:
    assert await _call(client, 'Delete', taskId=task_id, id=config_id) is None


async def _call(client: Client, kind: str, **params: Any) -> Any:
    method = f'{kind}TaskPushNotificationConfig{"s" if kind == "List" else ""}'
    if client.dialect.version == '1.0':
        result = await client.call(method, params)
        if kind == 'Delete':
            return result or None
        return [_official(each) for each in result['configs']] if kind == 'List' else _official(result)
    answer = (await client.post(rpc(method, _older(kind, params), client.dialect))).json
    if 'error' in answer:
        raise RpcError(client.dialect.error(answer))
    read = _RESULTS[kind].model_validate(answer).result
    assert json.loads(json.dumps(answer['result'])) == _dumped(read)
    if kind == 'List':
        return [_newer(each) for each in read]
    return None if read is None else _newer(read)


def _official(config: Json) -> Json:
    """As the official model reads it, which knows no other fields."""
    assert MessageToDict(ParseDict(config, TaskPushNotificationConfig())) == config
    return config


def _older(kind: str, params: Json) -> Json:
    if kind == 'Create':
        config = {key: value for key, value in params.items() if key != 'taskId'}
        if 'authentication' in config:
            authentication = dict(config['authentication'])
            config['authentication'] = {'schemes': [authentication.pop('scheme')], **authentication}
        return {'taskId': params['taskId'], 'pushNotificationConfig': config}
    which = {'pushNotificationConfigId': params['id']} if 'id' in params else {}
    return {'id': params['taskId'], **which}


def _newer(config: types.TaskPushNotificationConfig) -> Json:
    return MessageToDict(conversions.to_core_task_push_notification_config(config))


def _dumped(read: Any) -> Any:
    if isinstance(read, list):
        return [_dumped(each) for each in read]  # pyright: ignore[reportUnknownVariableType]
    return None if read is None else read.model_dump(mode='json', by_alias=True, exclude_unset=True)
