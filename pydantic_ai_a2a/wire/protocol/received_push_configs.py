"""Readers of push notification configurations, as clients receive them, for all codecs."""

from __future__ import annotations

from typing import Annotated, Any, cast

from pydantic import AfterValidator, BeforeValidator, with_config
from typing_extensions import TypedDict

from ...types.a2a_objects import ListTaskPushNotificationConfigResult, TaskPushNotificationConfig
from .lenient_reading import ANNOTATED, Filled, lenient, present_fields, read_answer
from .request_fields import PROTO_JSON


@with_config(PROTO_JSON)
class _Authentication(TypedDict, total=False):
    scheme: str | None
    schemes: list[str] | None
    credentials: str | None


def _authentication(wire: _Authentication) -> dict[str, Any] | None:
    scheme = wire.get('scheme') or next(iter(wire.get('schemes') or ()), None)
    credentials = wire.get('credentials')
    return {'scheme': scheme, **({'credentials': credentials} if credentials else {})} if scheme else None


def _flat_config(value: object) -> object:
    """Return a configuration of A2A 0.3, which is nested, in the form of 1.0."""
    if not isinstance(value, dict):
        return value
    wire = cast('dict[str, Any]', value)
    nested = wire.get('pushNotificationConfig')
    return {'taskId': wire.get('taskId'), **cast('dict[str, Any]', nested)} if isinstance(nested, dict) else wire


_Config = ANNOTATED[
    lenient(
        TaskPushNotificationConfig,
        present_fields,
        'url',
        url=Filled,
        authentication=Annotated[_Authentication, AfterValidator(_authentication)],
    ),
    BeforeValidator(_flat_config),
]


def _in_object(value: object) -> object:
    """Return the configurations of A2A 0.3, which are a bare list, in the form of 1.0."""
    return {'configs': cast('list[object]', value)} if isinstance(value, list) else value


_Configs = ANNOTATED[
    lenient(ListTaskPushNotificationConfigResult, present_fields, configs=list[_Config]),
    BeforeValidator(_in_object),
]


def read_config(value: object) -> TaskPushNotificationConfig:
    """Read a push notification configuration."""
    return read_answer(_Config, _flat_config(value))


def read_configs(value: object) -> tuple[list[TaskPushNotificationConfig], str]:
    """Read a page of push notification configurations, and the token of the next page; empty on the last page."""
    page = read_answer(_Configs, _in_object(value), 'configs')
    return page.get('configs', []), page.get('next_page_token', '')
