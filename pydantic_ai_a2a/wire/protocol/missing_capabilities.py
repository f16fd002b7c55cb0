"""The refusal of operations whose capability the agent card does not declare (§3.3.4)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

from ...errors import A2AError, InvalidParamsError, PushNotificationNotSupportedError, UnsupportedOperationError
from .operations import Capability, Operation

REFUSALS: Mapping[Capability, tuple[type[A2AError], str | None]] = MappingProxyType(
    {
        'streaming': (UnsupportedOperationError, 'This agent does not stream; use SendMessage and GetTask.'),
        'pushNotifications': (PushNotificationNotSupportedError, None),
        'extendedAgentCard': (UnsupportedOperationError, 'This agent has no extended agent card.'),
    }
)
"""Error class and message, in A2A 1.0, for operations whose capability the agent lacks."""

_INLINE = ('configuration.taskPushNotificationConfig', 'configuration.pushNotificationConfig')
"""The fields of a message's params that need the capability `pushNotifications`."""


def refuse_unsupported(
    operation: Operation,
    capabilities: Collection[str],
    refusals: Mapping[Capability, tuple[type[A2AError], str | None]] = REFUSALS,
) -> None:
    """Refuse an operation whose capability the agent card does not declare (§3.3.4).

    Args:
        operation: The operation.
        capabilities: Names of the declared capabilities.
        refusals: Errors of the request's version.

    Raises:
        A2AError: The error from `refusals`.
    """
    if operation.capability is not None and operation.capability not in capabilities:
        error, message = refusals[operation.capability]
        raise error(message)


def refuse_unsupported_params(
    operation: Operation,
    error: A2AError,
    capabilities: Collection[str],
    refusals: Mapping[Capability, tuple[type[A2AError], str | None]] = REFUSALS,
) -> None:
    """Refuse invalid params for a missing capability instead, because capabilities are checked first.

    Args:
        operation: The operation.
        error: The refusal of the request; errors other than invalid params are ignored.
        capabilities: As for `refuse_unsupported`.
        refusals: As for `refuse_unsupported`.

    Raises:
        A2AError: The error from `refusals`.
    """
    if not isinstance(error, InvalidParamsError):
        return
    refuse_unsupported(operation, capabilities, refusals)
    inline = any(violation.field.startswith(_INLINE) for violation in error.violations)
    if inline and 'pushNotifications' not in capabilities:
        raise PushNotificationNotSupportedError
