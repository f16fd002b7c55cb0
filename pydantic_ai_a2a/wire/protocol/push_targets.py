"""The target of a webhook in the form of each version, to the vocabulary and back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, NotRequired

from pydantic import AfterValidator, Field, StringConstraints, with_config
from pydantic_core import PydanticCustomError
from typing_extensions import TypedDict

from ...types.webhook_targets import PushTarget
from .request_fields import CAMEL_CASE, MAX_LINE, PROTO_JSON, MaybeId

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
class WireTarget(TypedDict):
    """A target, in the form of A2A 1.0 and FastA2A."""

    id: NotRequired[MaybeId | None]
    url: _Url
    token: NotRequired[_Token | None]
    authentication: NotRequired[_Authentication | None]


@with_config(CAMEL_CASE)
class _OlderAuthentication(TypedDict):
    schemes: Annotated[list[_Scheme], Field(min_length=1)]
    credentials: NotRequired[_Credentials | None]


@with_config(CAMEL_CASE)
class OlderWireTarget(TypedDict):
    """A target, in the form of A2A 0.3."""

    id: NotRequired[MaybeId | None]
    url: _Url
    token: NotRequired[_Token | None]
    authentication: NotRequired[_OlderAuthentication | None]


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


Target = Annotated[WireTarget, AfterValidator(read_target)]
"""A target as A2A 1.0 and FastA2A write it."""


OlderTarget = Annotated[OlderWireTarget, AfterValidator(read_target)]
"""A target as A2A 0.3 writes it."""
