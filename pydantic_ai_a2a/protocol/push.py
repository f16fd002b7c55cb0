"""Push notification configurations in each version's form, to the vocabulary and back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, NotRequired

from pydantic import AfterValidator, Field, StringConstraints, with_config
from pydantic_core import PydanticCustomError
from typing_extensions import TypedDict

from ..types import CreatePushParams, ListPushParams, PushParams, PushTarget
from .fields import CAMEL_CASE, MAX_LINE, PROTO_JSON, Count, Id, Line, MaybeId

__all__ = ('NESTED', 'OlderTarget', 'Target', 'flat', 'target_fields')


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


@with_config(PROTO_JSON)
class _Create(_Target):
    task_id: Id
    tenant: NotRequired[str | None]


@with_config(PROTO_JSON)
class _One(TypedDict):
    task_id: Id
    id: Id
    tenant: NotRequired[str | None]


@with_config(PROTO_JSON)
class _All(TypedDict):
    task_id: Id
    page_size: NotRequired[Annotated[Count, Field(ge=1, le=100)] | None]
    page_token: NotRequired[Line | None]
    tenant: NotRequired[str | None]


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


def _read_target(wire: Mapping[str, Any]) -> PushTarget:
    authentication: Mapping[str, Any] = wire.get('authentication') or {}
    schemes: list[str | None] = authentication.get('schemes') or [authentication.get('scheme')]
    return PushTarget(
        id=wire.get('id') or '',
        url=wire['url'],
        token=wire.get('token') or None,
        scheme=schemes[0],
        credentials=authentication.get('credentials') or None,
    )


def target_fields(target: PushTarget, scheme: Mapping[str, object]) -> dict[str, object]:
    """Return the JSON members of a target, except its id. `scheme` is the version's spelling of its scheme."""
    fields: dict[str, object] = {'url': target.url}
    if target.token is not None:
        fields['token'] = target.token
    if target.scheme is not None:
        credentials = {} if target.credentials is None else {'credentials': target.credentials}
        fields['authentication'] = {**scheme, **credentials}
    return fields


Target = Annotated[_Target, AfterValidator(_read_target)]
"""A target as A2A 1.0 and FastA2A write it."""
OlderTarget = Annotated[_OlderTarget, AfterValidator(_read_target)]
"""A target as A2A 0.3 writes it."""


def _create(wire: _Create, dialect: str) -> CreatePushParams:
    tenant = _tenant(wire, dialect)
    return CreatePushParams(task_id=wire['task_id'], target=_read_target(wire), dialect=dialect, tenant=tenant)


def _one(wire: _One, dialect: str) -> PushParams:
    return PushParams(task_id=wire['task_id'], id=wire['id'], tenant=_tenant(wire, dialect))


def _all(wire: _All, dialect: str) -> ListPushParams:
    return ListPushParams(
        task_id=wire['task_id'],
        page_size=wire.get('page_size'),
        page_token=wire.get('page_token') or '',
        tenant=_tenant(wire, dialect),
    )


def _tenant(wire: Mapping[str, Any], dialect: str) -> str:
    return (wire.get('tenant') or '') if dialect == '1.0' else ''


def flat(dialect: str) -> dict[str, Any]:
    """Return the params of the operations, by their names in 1.0, for the dialects with a task's `taskId`."""
    one = Annotated[_One, AfterValidator(partial(_one, dialect=dialect))]
    return {
        'CreateTaskPushNotificationConfig': Annotated[_Create, AfterValidator(partial(_create, dialect=dialect))],
        'GetTaskPushNotificationConfig': one,
        'ListTaskPushNotificationConfigs': Annotated[_All, AfterValidator(partial(_all, dialect=dialect))],
        'DeleteTaskPushNotificationConfig': one,
    }


def _older_create(wire: Mapping[str, Any]) -> CreatePushParams:
    target = _read_target(wire['push_notification_config'])
    return CreatePushParams(task_id=wire['task_id'], target=target, field='pushNotificationConfig', dialect='0.3')


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
