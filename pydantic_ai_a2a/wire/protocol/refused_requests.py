"""The refusal of a body that is no request, with what was read of the request."""

from __future__ import annotations

from ...errors import A2AError
from .operations import Operation


class RpcRefused(Exception):
    """The body is not a request that can be served."""

    def __init__(
        self, error: A2AError, id: bytes = b'null', operation: Operation | None = None, *, notification: bool = False
    ) -> None:
        self.error = error
        """The error for the client."""
        self.id = id
        """The request's id as JSON; `null` if unreadable."""
        self.operation = operation
        """The requested operation; None if unreadable."""
        self.notification = notification
        """True if the request has no id: its client expects no answer."""
        super().__init__(error.message)
