"""The dependencies of an agent, which Temporal passes to activities as JSON."""

from __future__ import annotations

from typing import Any, cast

from pydantic import PydanticUserError, TypeAdapter, ValidationError
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.exceptions import UserError
from pydantic_core import PydanticSerializationError, to_json

from ..type_names import type_name

_NO_DATA = (
    'engine=Temporal() passes the dependencies of the agent to activities as JSON. Give deps_type= a type that Pydantic'
    ' can write and read, such as a dataclass, and make live objects and secrets in the tools.'
)


def dump_deps(agent: AbstractAgent[Any, Any], deps: Any) -> bytes:
    """Write dependencies as Pydantic AI does for activities.

    Raises:
        UserError: They do not come back equal.
    """
    try:
        body = to_json(deps)
        back = deps_adapter(agent).validate_json(body)
    except (PydanticUserError, PydanticSerializationError, ValidationError) as error:
        raise UserError(_NO_DATA) from error
    if type(back) is not type(deps) or back != deps:
        raise UserError(f'{_NO_DATA} Those of type {type_name(type(deps))} come back changed.')
    return body


def deps_adapter(agent: AbstractAgent[Any, Any]) -> TypeAdapter[Any]:
    """Return the adapter of the dependencies of an agent."""
    kind = cast('Any', agent.deps_type)
    return TypeAdapter(Any if kind in (object, type(None)) else kind | None)
