"""Push notification configurations as each version writes them, to the vocabulary. Pure; knows no method and no URL.

They are read only once it is known that the operation is served: a refusal goes before what is wrong with the params.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, NamedTuple, NotRequired

from pydantic import Field, StringConstraints, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from ..types import PushParams, PushTarget
from .envelope import invalid
from .fields import CAMEL_CASE, MAX_LINE, PROTO_JSON, Count, Id, Line, MaybeId

__all__ = ('created_in', 'read_create', 'read_delete', 'read_get', 'read_inline', 'read_list')

_Token = Annotated[str, StringConstraints(max_length=MAX_LINE, pattern=r'^[\x21-\x7e]*$')]
"""What goes into a header as it is."""
_Scheme = Annotated[str, StringConstraints(min_length=1, max_length=MAX_LINE, pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]*$")]
_Credentials = Annotated[str, StringConstraints(max_length=MAX_LINE, pattern=r'^[\x20-\x7e]*$')]
_Url = Annotated[str, StringConstraints(min_length=1, max_length=MAX_LINE, pattern=r'^[^\x00-\x20\x7f-\x9f]*$')]


@with_config(PROTO_JSON)
class _Authentication(TypedDict):
    scheme: _Scheme
    credentials: NotRequired[_Credentials | None]


@with_config(PROTO_JSON)
class _Target(TypedDict):
    """A target, with what else a version has beside it."""

    id: NotRequired[MaybeId | None]
    url: _Url
    token: NotRequired[_Token | None]
    authentication: NotRequired[_Authentication | None]


@with_config(PROTO_JSON)
class _Create(_Target):
    task_id: Id


@with_config(PROTO_JSON)
class _One(TypedDict):
    task_id: Id
    id: Id


@with_config(PROTO_JSON)
class _All(TypedDict):
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


class _Shapes(NamedTuple):
    """What a version has where."""

    target: Any
    create: Any
    get: Any
    delete: Any
    all: Any
    nested: str | None
    """Where the target is in what creates it; None if it is what creates it."""
    task: str
    """Where a task is named that is not created for."""
    config: str
    """Where a configuration is named."""


_FLAT = _Shapes(_Target, _Create, _One, _One, _All, None, 'task_id', 'id')
_NESTED = _Shapes(
    _OlderTarget,
    _OlderCreate,
    _OlderOne,
    _OlderDelete,
    _OlderAll,
    'push_notification_config',
    'id',
    'push_notification_config_id',
)


def _of(dialect: str) -> _Shapes:
    return _NESTED if dialect == '0.3' else _FLAT


@cache
def _adapter(shape: Any) -> TypeAdapter[Any]:
    return TypeAdapter(shape)


def _read(shape: Any, wire: object, at: str = '') -> dict[str, Any]:
    try:
        return _adapter(shape).validate_python(wire)
    except ValidationError as error:
        raise invalid(error, at=at.split('.') if at else (), bad='characters that do not belong there') from None


def _target(wire: Mapping[str, Any]) -> PushTarget:
    authentication: Mapping[str, Any] = wire.get('authentication') or {}
    schemes: list[str | None] = authentication.get('schemes') or [authentication.get('scheme')]
    return PushTarget(
        id=wire.get('id') or '',
        url=wire['url'],
        token=wire.get('token') or None,
        scheme=schemes[0],
        credentials=authentication.get('credentials') or None,
    )


def created_in(dialect: str) -> str:
    """Where a target is in the params that create it; empty if it is the params."""
    return '' if _of(dialect).nested is None else 'pushNotificationConfig'


def read_inline(wire: Mapping[str, Any], dialect: str, at: str) -> PushTarget:
    """Read what a message asks for at some field of its params.

    Raises:
        InvalidParamsError: It is not what the version has; like all that follow.
    """
    return _target(_read(_of(dialect).target, wire, at))


def read_create(params: PushParams) -> tuple[str, PushTarget]:
    """The task, and what to send where."""
    shapes = _of(params.dialect)
    wire = _read(shapes.create, params.wire)
    return wire['task_id'], _target(wire if shapes.nested is None else wire[shapes.nested])


def read_get(params: PushParams) -> tuple[str, str | None]:
    """The task, and which configuration of it; None where 0.3 does not say."""
    shapes = _of(params.dialect)
    wire = _read(shapes.get, params.wire)
    return wire[shapes.task], wire.get(shapes.config) or None


def read_delete(params: PushParams) -> tuple[str, str]:
    """The task, and which configuration of it."""
    shapes = _of(params.dialect)
    wire = _read(shapes.delete, params.wire)
    return wire[shapes.task], wire[shapes.config]


def read_list(params: PushParams) -> tuple[str, int | None, str]:
    """The task, how many of its configurations at most, and where the page begins; None and '' for all, as in 0.3."""
    shapes = _of(params.dialect)
    wire = _read(shapes.all, params.wire)
    return wire[shapes.task], wire.get('page_size'), wire.get('page_token') or ''
