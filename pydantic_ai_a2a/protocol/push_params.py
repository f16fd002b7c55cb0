"""Writers of the params of requests, as clients send them: what the codecs decode."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, NotRequired, cast

from pydantic import AfterValidator, Field, StringConstraints, with_config
from pydantic_core import PydanticCustomError, from_json
from typing_extensions import TypedDict

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
from .fields import CAMEL_CASE, MAX_LINE, PROTO_JSON, Count, Id, Line, MaybeId, Tenanted


def _written(**fields: object) -> dict[str, Any]:
    """Return the fields that are set."""
    return {name: value for name, value in fields.items() if value is not None and value not in ('', ())}


def _message(message: Message) -> dict[str, Any]:
    return from_json(stored.dump_message(message))


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


def _params(params: Any) -> dict[str, Any]:
    """Return the params, without the tenant, that A2A 1.0 and FastA2A write alike."""
    if isinstance(params, GetParams):
        return _written(id=params.id, historyLength=params.history_length)
    if isinstance(params, CancelParams):
        return _written(id=params.id, metadata=params.metadata)
    if isinstance(params, SubscribeParams):
        return {'id': params.id}
    if isinstance(params, CreatePushParams):
        return {'taskId': params.task_id, **target_json(params.target)}
    if isinstance(params, PushParams):
        return _written(taskId=params.task_id, id=params.id)
    if isinstance(params, ListPushParams):
        return _written(taskId=params.task_id, pageSize=params.page_size, pageToken=params.page_token)
    return {}


def newer_params(params: Any) -> dict[str, Any]:
    """Return params as JSON values of A2A 1.0."""
    written = _written(tenant=params.tenant)
    if isinstance(params, SendParams):
        push = None if params.push_config is None else target_json(params.push_config)
        configuration = _written(
            acceptedOutputModes=params.accepted_output_modes,
            taskPushNotificationConfig=push,
            historyLength=params.history_length,
            returnImmediately=params.return_immediately or None,
        )
        written |= {'message': _message(params.message)}
        return written | _written(configuration=configuration or None, metadata=params.metadata)
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
        configuration = _written(
            blocking=not params.return_immediately, historyLength=params.history_length, **{push_field: push}
        )
        configuration['acceptedOutputModes'] = list(params.accepted_output_modes)
        sent = message(_message(params.message))
        return _written(message=sent, configuration=configuration, metadata=params.metadata)
    if isinstance(params, ListParams):
        return _list_params(params, str)
    if nested and isinstance(params, CreatePushParams):
        return {'taskId': params.task_id, 'pushNotificationConfig': target_json(params.target, nested=True)}
    if nested and isinstance(params, PushParams):
        return _written(id=params.task_id, pushNotificationConfigId=params.id)
    if nested and isinstance(params, ListPushParams):
        return {'id': params.task_id}
    return _params(params)


# --- push notification configurations in each version's form, to the vocabulary and back ------------------------------


def _only(pattern: str) -> AfterValidator:
    matches = re.compile(pattern).fullmatch

    def check(value: str) -> str:
        if matches(value) is None:
            raise PydanticCustomError('characters', 'must not have characters that this field does not allow')
        return value

    return AfterValidator(check)


_Text = Annotated[str, StringConstraints(max_length=MAX_LINE)]
_Token = Annotated[_Text, _only(r'[\x21-\x7e]*')]
"""Text that is sent unchanged in a header."""
_Scheme = Annotated[_Text, Field(min_length=1), _only(r"[A-Za-z0-9!#$%&'*+.^_`|~-]*")]
_Credentials = Annotated[_Text, _only(r'[\x20-\x7e]*')]
_Url = Annotated[_Text, Field(min_length=1), _only(r'[^\x00-\x20\x7f-\x9f]*')]


@with_config(PROTO_JSON)
class _Authentication(TypedDict):
    scheme: _Scheme
    credentials: NotRequired[_Credentials | None]


@with_config(PROTO_JSON)
class _Target(TypedDict):
    """A target, in the form of A2A 1.0 and FastA2A."""

    id: NotRequired[MaybeId | None]
    url: _Url
    token: NotRequired[_Token | None]
    authentication: NotRequired[_Authentication | None]


class _Create(_Target, Tenanted):
    task_id: Id


class _One(Tenanted):
    task_id: Id
    id: Id


class _All(Tenanted):
    task_id: Id
    page_size: NotRequired[Annotated[Count, Field(ge=1, le=100)] | None]
    page_token: NotRequired[Line | None]


@with_config(CAMEL_CASE)
class _OlderAuthentication(TypedDict):
    schemes: Annotated[list[_Scheme], Field(min_length=1)]
    credentials: NotRequired[_Credentials | None]


@with_config(CAMEL_CASE)
class _OlderTarget(TypedDict):
    id: NotRequired[MaybeId | None]
    url: _Url
    token: NotRequired[_Token | None]
    authentication: NotRequired[_OlderAuthentication | None]


@with_config(CAMEL_CASE)
class _OlderCreate(TypedDict):
    task_id: Id
    push_notification_config: _OlderTarget


@with_config(CAMEL_CASE)
class _OlderOne(TypedDict):
    id: Id
    push_notification_config_id: NotRequired[MaybeId | None]


@with_config(CAMEL_CASE)
class _OlderDelete(TypedDict):
    id: Id
    push_notification_config_id: Id


@with_config(CAMEL_CASE)
class _OlderAll(TypedDict):
    id: Id


def read_target(wire: Mapping[str, Any]) -> PushTarget:
    """Read the target of a webhook, of A2A 1.0 or 0.3."""
    authentication: Mapping[str, Any] = wire.get('authentication') or {'scheme': None}
    # Credentials without a scheme could not be sent: a client's own webhook is not validated, and fails here.
    scheme = authentication['schemes'][0] if 'schemes' in authentication else authentication['scheme']
    return PushTarget(
        id=wire.get('id') or '',
        url=wire['url'],
        token=wire.get('token') or None,
        scheme=scheme,
        credentials=authentication.get('credentials') or None,
    )


def target_json(target: PushTarget, *, nested: bool = False) -> dict[str, Any]:
    """Return a target as JSON values; `nested` in A2A 0.3, which has a list of schemes."""
    fields = {**_written(id=target.id), 'url': target.url, **_written(token=target.token)}
    if target.scheme is not None:
        scheme = {'schemes': [target.scheme]} if nested else {'scheme': target.scheme}
        fields['authentication'] = {**scheme, **_written(credentials=target.credentials)}
    return fields


Target = Annotated[_Target, AfterValidator(read_target)]
"""A target as A2A 1.0 and FastA2A write it."""
OlderTarget = Annotated[_OlderTarget, AfterValidator(read_target)]
"""A target as A2A 0.3 writes it."""


def _create(wire: _Create, tenants: bool) -> CreatePushParams:
    return CreatePushParams(task_id=wire['task_id'], target=read_target(wire), tenant=_tenant(wire, tenants))


def _one(wire: _One, tenants: bool) -> PushParams:
    return PushParams(task_id=wire['task_id'], id=wire['id'], tenant=_tenant(wire, tenants))


def _all(wire: _All, tenants: bool) -> ListPushParams:
    return ListPushParams(
        task_id=wire['task_id'],
        page_size=wire.get('page_size'),
        page_token=wire.get('page_token') or '',
        tenant=_tenant(wire, tenants),
    )


def _tenant(wire: Mapping[str, Any], tenants: bool) -> str:
    return (wire.get('tenant') or '') if tenants else ''


def flat(*, tenants: bool) -> dict[str, Any]:
    """Return the params of the operations, by their names in 1.0, for the dialects with a task's `taskId`.

    Args:
        tenants: True if the dialect has tenants.
    """
    one = Annotated[_One, AfterValidator(partial(_one, tenants=tenants))]
    return {
        'CreateTaskPushNotificationConfig': Annotated[_Create, AfterValidator(partial(_create, tenants=tenants))],
        'GetTaskPushNotificationConfig': one,
        'ListTaskPushNotificationConfigs': Annotated[_All, AfterValidator(partial(_all, tenants=tenants))],
        'DeleteTaskPushNotificationConfig': one,
    }


def _older_create(wire: Mapping[str, Any]) -> CreatePushParams:
    target = read_target(wire['push_notification_config'])
    return CreatePushParams(task_id=wire['task_id'], target=target, field='pushNotificationConfig')


def _older_one(wire: Mapping[str, Any]) -> PushParams:
    return PushParams(task_id=wire['id'], id=wire.get('push_notification_config_id') or '')


def _older_all(wire: Mapping[str, Any]) -> ListPushParams:
    return ListPushParams(task_id=wire['id'])


NESTED: Mapping[str, Any] = {
    'CreateTaskPushNotificationConfig': Annotated[_OlderCreate, AfterValidator(_older_create)],
    'GetTaskPushNotificationConfig': Annotated[_OlderOne, AfterValidator(_older_one)],
    'ListTaskPushNotificationConfigs': Annotated[_OlderAll, AfterValidator(_older_all)],
    'DeleteTaskPushNotificationConfig': Annotated[_OlderDelete, AfterValidator(_older_one)],
}
"""The params of the operations, by their names in 1.0, for A2A 0.3."""
