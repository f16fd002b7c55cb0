"""Output types and exceptions with which an agent chooses the state of its task.

Each is an output type, may be returned by an output function, and may be raised by a tool.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pydantic import GetCoreSchemaHandler
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred
from pydantic_core import CoreSchema, core_schema

__all__ = ('MARK', 'STATES', 'AuthRequired', 'InputRequired', 'NoCredential', 'Rejected', 'State')

MARK = 'a2a'
"""Key of these types' data in the metadata of a deferred call."""


@dataclass(eq=False)
class InputRequired(CallDeferred):
    """Ask the user for something that you need to go on."""

    # Models read the docstrings of these classes as descriptions of output types.

    question: str
    """Question for the client."""
    schema: Mapping[str, Any] | None = None
    """JSON Schema of the answer, which is validated. Default None: any answer. Only code sets it, never a model."""

    def __post_init__(self) -> None:
        schema = None if self.schema is None else dict(self.schema)
        CallDeferred.__init__(self, {MARK: {'question': self.question, 'schema': schema}}, kind='question')

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.question, self.schema)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: type[Any], handler: GetCoreSchemaHandler) -> CoreSchema:
        return _schema(cls, 'question')


@dataclass(eq=False)
class AuthRequired(ApprovalRequired):
    """Ask the user to sign in where you have no access."""

    message: str
    """Text for the client."""
    schemes: Sequence[str] = ()
    """Names of suitable security schemes, as on the agent card."""
    url: str | None = None
    """URL for signing in."""

    def __post_init__(self) -> None:
        data = {'message': self.message, 'schemes': [*self.schemes], 'url': self.url}
        ApprovalRequired.__init__(self, {MARK: data})

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, self.schemes, self.url)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: type[Any], handler: GetCoreSchemaHandler) -> CoreSchema:
        return _schema(cls, 'message')


class NoCredential(AuthRequired):
    """The run has no valid credential of its caller. If no code catches the error, the task waits for the caller."""

    def __init__(self) -> None:
        super().__init__('The access of the agent has expired: send the message again with valid credentials.')

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()


@dataclass(eq=False)
class Rejected(Exception):
    """Decline to do the task at all."""

    reason: str
    """Reason for the client."""

    def __post_init__(self) -> None:
        Exception.__init__(self, self.reason)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: type[Any], handler: GetCoreSchemaHandler) -> CoreSchema:
        return _schema(cls, 'reason')


State: TypeAlias = InputRequired | AuthRequired | Rejected
STATES = (InputRequired, AuthRequired, Rejected)


def _schema(cls: type[Any], field: str) -> CoreSchema:
    """Return the schema of an object with one text, the only field that a model can set."""
    fields = core_schema.typed_dict_schema({field: core_schema.typed_dict_field(core_schema.str_schema())})
    shown = {'title': cls.__name__, 'description': cls.__doc__}
    built = core_schema.no_info_after_validator_function(
        lambda fields: cls(**fields), fields, metadata={'pydantic_js_updates': shown}
    )
    return core_schema.json_or_python_schema(
        json_schema=built,
        python_schema=core_schema.union_schema([core_schema.is_instance_schema(cls), built]),
        serialization=core_schema.plain_serializer_function_ser_schema(
            lambda state: {field: getattr(state, field)}, return_schema=fields
        ),
    )
