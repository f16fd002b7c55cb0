"""The params of push notification configurations in the form of each version, to the vocabulary and back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, NotRequired

from pydantic import AfterValidator, Field, StringConstraints, with_config
from pydantic_core import PydanticCustomError
from typing_extensions import TypedDict

from ..types import CreatePushParams, ListPushParams, PushParams, PushTarget
from .request_fields import CAMEL_CASE, MAX_LINE, PROTO_JSON, Count, Id, Line, MaybeId, Tenanted

_Text = Annotated[str, StringConstraints(max_length=MAX_LINE)]


def set_fields(**fields: object) -> dict[str, Any]:
    """Return the fields that are set."""
    return {name: value for name, value in fields.items() if value is not None and value not in ('', ())}


def _only(pattern: str) -> AfterValidator:
    matches = re.compile(pattern).fullmatch

    def check(value: str) -> str:
        if matches(value) is None:
            raise PydanticCustomError('characters', 'must not have characters that this field does not allow')
        return value

    return AfterValidator(check)


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
    fields = {**set_fields(id=target.id), 'url': target.url, **set_fields(token=target.token)}
    if target.scheme is not None:
        scheme = {'schemes': [target.scheme]} if nested else {'scheme': target.scheme}
        fields['authentication'] = {**scheme, **set_fields(credentials=target.credentials)}
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
