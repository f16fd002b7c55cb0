"""The call that started a run, as a user's `deps_factory` gets it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, overload

from ...types.a2a_objects import Message
from ...types.callers import Caller
from ..conversion.typed_input import ValidatedInput, input_of

InputT = TypeVar('InputT')


@dataclass(frozen=True, slots=True, kw_only=True)
class CallContext:
    """The call that started a run, as accepted: the argument of `deps_factory`."""

    caller: Caller
    """Sender of the message, with the scopes of the sender's credentials at the call."""
    headers: Mapping[str, str]
    """The HTTP headers named by `deps_headers`, in lower case. Repeated headers are joined with `, `."""
    message: Message
    """The first message of the run."""
    metadata: Mapping[str, Any]
    """Metadata of the request. The message has metadata of its own."""
    task_id: str
    context_id: str
    validated: ValidatedInput | None = field(default=None, repr=False)
    """The data behind `input`; None without `Messages.input_type`."""

    @overload
    def input(self, input_type: type[InputT]) -> InputT: ...
    @overload
    def input(self, input_type: Any) -> Any: ...
    def input(self, input_type: Any) -> Any:
        """Return the validated data that has begun the task: the object that `a2a(ctx).input` also returns.

        Args:
            input_type: The type in `Messages.input_type`.

        Raises:
            NoInput: The task has no such data, or `Messages.input_type` is another type.
        """
        return input_of(self.validated, input_type)

    @property
    def tenant(self) -> str:
        """The caller's tenant; empty without tenants."""
        return self.caller.tenant
