"""The error of credentials that are not valid."""

from __future__ import annotations


class InvalidCredentials(Exception):
    """The request has credentials, but they are not valid. An `Authenticator` raises this error.

    Args:
        reason: A word or two for the audit log, such as `expired`. Never the credential.
        description: ASCII text that the client gets besides `invalid_token`, if any.
    """

    def __init__(self, reason: str, description: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.description = description
