"""The port for encrypted credentials, which runs use on behalf of callers.

`TaskQueue.submit` stores a credential with its message. The end of the task deletes the credentials of the task, and
sweeps delete expired credentials.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import field
from typing import Any

from pydantic_core import from_json, to_json

from ....types.frozen_values import frozen

_NAME = 'credential'


@frozen
class SealedCredential:
    """An encrypted credential of the sender of a message."""

    id: str
    """Unique in the task."""
    until: int
    """Time when the credential expires (ms)."""
    body: bytes = field(repr=False)
    """The encrypted credential."""


class CredentialStore(ABC):
    """Reads the credentials of tasks."""

    @abstractmethod
    async def load(self, task_id: str, credential_id: str) -> SealedCredential | None:
        """Return a credential of a task; None if the credential was deleted."""


def with_credential(request: bytes | None, credential: SealedCredential | None) -> bytes:
    """Return the request of a message with the id of its credential. See `Submission.request`."""
    fields: dict[str, Any] = {} if request is None else from_json(request)
    return to_json({**fields, _NAME: None if credential is None else credential.id})


def credential_id(request: bytes | None) -> str | None:
    """Return the id of the credential in the request of a run; None without a credential."""
    return None if request is None else from_json(request).get(_NAME)


def may_have_credentials(request: bytes) -> bool:
    """Return False if no message of a task has a credential, by the request of any run of the task."""
    return b'"credential":' in request
