"""The params of the operations on push notification configurations in the form of each version, to the vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, NotRequired

from pydantic import AfterValidator, Field, with_config
from typing_extensions import TypedDict

from ...types.operation_params import CreatePushParams, ListPushParams, PushParams
from .push_targets import OlderWireTarget, WireTarget, read_target
from .request_fields import CAMEL_CASE, Count, Id, Line, MaybeId, Tenanted


class _Create(WireTarget, Tenanted):
    task_id: Id


class _One(Tenanted):
    task_id: Id
    id: Id


class _All(Tenanted):
    task_id: Id
    page_size: NotRequired[Annotated[Count, Field(ge=1, le=100)] | None]
    page_token: NotRequired[Line | None]


@with_config(CAMEL_CASE)
class _OlderCreate(TypedDict):
    task_id: Id
    push_notification_config: OlderWireTarget


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
