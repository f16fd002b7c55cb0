"""Output types and exceptions with which an agent chooses the state of its task.

Each is an output type, may be returned by an output function, and may be raised by a tool.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

from pydantic import GetCoreSchemaHandler
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred
from pydantic_core import CoreSchema, core_schema

MARK = 'a2a'
"""Key of these types' data in the metadata of a deferred call."""


class _Chosen:
    """A dataclass that a model chooses as an object with one text, the first field."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, name) for name in _fields_of(type(self)))

    @classmethod
    def __get_pydantic_core_schema__(cls, source: type[Any], handler: GetCoreSchemaHandler) -> CoreSchema:
        name = _fields_of(cls)[0]
        text = core_schema.typed_dict_schema({name: core_schema.typed_dict_field(core_schema.str_schema())})
        shown = {'title': cls.__name__, 'description': cls.__doc__}
        built = core_schema.no_info_after_validator_function(
            lambda fields: cls(**fields), text, metadata={'pydantic_js_updates': shown}
        )
        return core_schema.json_or_python_schema(
            json_schema=built,
            python_schema=core_schema.union_schema([core_schema.is_instance_schema(cls), built]),
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda state: {name: getattr(state, name)}, return_schema=text
            ),
        )


def _fields_of(cls: Any) -> list[str]:
    return [item.name for item in fields(cls)]


@dataclass(eq=False)
class InputRequired(_Chosen, CallDeferred):
    """Ask the user for something that you need to go on."""

    # Models read the docstrings of these classes as descriptions of output types.

    __module__ = 'pydantic_ai_a2a'
    # DBOS stores these classes by this name, which does not tell where the code stands.

    question: str
    """Question for the client."""
    schema: Mapping[str, Any] | None = None
    """JSON Schema of the answer, which is validated. Default None: any answer. Only code sets it, never a model."""

    def __post_init__(self) -> None:
        schema = None if self.schema is None else dict(self.schema)
        CallDeferred.__init__(self, {MARK: {'question': self.question, 'schema': schema}}, kind='question')


@dataclass(eq=False)
class AuthRequired(_Chosen, ApprovalRequired):
    """Ask the user to sign in where you have no access."""

    __module__ = 'pydantic_ai_a2a'

    message: str
    """Text for the client."""
    schemes: Sequence[str] = ()
    """Names of suitable security schemes, as on the agent card."""
    url: str | None = None
    """URL for signing in."""

    def __post_init__(self) -> None:
        data = {'message': self.message, 'schemes': [*self.schemes], 'url': self.url}
        ApprovalRequired.__init__(self, {MARK: data})


class NoCredential(AuthRequired):
    """The run has no valid credential of its caller. If no code catches the error, the task waits for the caller."""

    __module__ = 'pydantic_ai_a2a'

    def __init__(self) -> None:
        super().__init__('The access of the agent has expired: send the message again with valid credentials.')

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()


@dataclass(eq=False)
class Rejected(_Chosen, Exception):
    """Decline to do the task at all."""

    __module__ = 'pydantic_ai_a2a'

    reason: str
    """Reason for the client."""

    def __post_init__(self) -> None:
        Exception.__init__(self, self.reason)


State: TypeAlias = InputRequired | AuthRequired | Rejected


STATES = (InputRequired, AuthRequired, Rejected)
