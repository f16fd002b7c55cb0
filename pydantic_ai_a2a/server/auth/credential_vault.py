"""Credentials of callers for runs: the exchange with a message, and the encrypted form in the store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from inspect import isawaitable
from math import isfinite
from typing import Any

from pydantic_core import from_json, to_json

from ...base_exceptions import ends_task
from ...errors import InternalError, OverloadedError
from ...settings.credentials import Credential, Credentials
from ...types.callers import Caller
from ...wire.protocol import new_ids
from ..encryption import Encryption, Unreadable
from ..store.ports import Claim, CredentialStore, SealedCredential
from ..store.ports.credentials import credential_id
from .request_info import RequestInfo

logger = logging.getLogger('pydantic_ai_a2a')

_MAX_VALUE = 16_000
_MAX_SECONDS = 10.0**9


class CredentialVault:
    """Exchanges and reads the credentials of callers.

    Args:
        settings: The user's function, the keys and the time limit.
        credentials: The stored credentials; None for a backend without credentials.
        now: Returns the time (ms).

    Raises:
        ValueError: The backend has no credentials, or a key is malformed.
        ImportError: `cryptography` is not installed.
    """

    def __init__(self, settings: Credentials, credentials: CredentialStore | None, now: Callable[[], int]) -> None:
        if credentials is None:
            raise ValueError(
                'Access.credentials needs a backend with credentials, and cannot be combined with storage= or broker=.'
            )
        self._settings = settings
        self._store = credentials
        self._now = now
        self._encryption = Encryption(settings.keys, 'Credentials.keys')

    async def exchange(self, request: RequestInfo, caller: Caller, task_id: str) -> SealedCredential | None:
        """Return the encrypted credential for a message; None if the user's function returns none.

        Raises:
            OverloadedError: The function has failed, or has not returned in time.
            InternalError: The function has returned no usable credential.
        """
        credential = await self._exchanged(request, caller)
        if credential is None:
            return None
        if not _is_credential(credential):
            logger.error(
                'Credentials.exchange must return None, or a Credential with a value of 1 to %d characters and a'
                ' positive expires_in (correlation id %s).',
                _MAX_VALUE,
                request.correlation_id,
            )
            raise InternalError('The credentials of the caller could not be exchanged.')
        return SealedCredential(
            id=new_ids.new_id(),
            until=self._now() + int(credential.expires_in * 1000),
            body=self._encryption.encrypt(to_json([task_id, credential.value])),
        )

    async def _exchanged(self, request: RequestInfo, caller: Caller) -> Any:
        current = asyncio.current_task()
        try:
            async with asyncio.timeout(self._settings.timeout):
                credential = self._settings.exchange(request.starlette(), caller)
                return await credential if isawaitable(credential) else credential
        except BaseException as error:
            if ends_task(error, current):
                raise
            # The text of the error may hold a token.
            text = 'Credentials.exchange failed with %s (correlation id %s).'
            logger.error(text, type(error).__name__, request.correlation_id)
        raise OverloadedError(
            'The credentials of the caller could not be exchanged; try again later.', headers={'Retry-After': '1'}
        )

    async def read(self, claim: Claim) -> str | None:
        """Return the credential of a run; None if the run has no credential, or its credential has expired."""
        name = credential_id(claim.request)
        if name is None:
            return None
        sealed = await self._store.load(claim.header.id, name)
        if sealed is None or sealed.until <= self._now():
            return None
        try:
            task_id, value = from_json(self._encryption.decrypt(sealed.body))
        except Unreadable:
            logger.error('No key of Credentials.keys decrypts the credential of task %s.', claim.header.id)
            return None
        return value if task_id == claim.header.id else None


def _is_credential(credential: object) -> bool:
    if not isinstance(credential, Credential):
        return False
    value: Any = credential.value  # a user's function may use other types than declared
    seconds: Any = credential.expires_in
    if not isinstance(value, str) or not isinstance(seconds, int | float) or not isfinite(seconds):
        return False
    return 0 < len(value) <= _MAX_VALUE and value.isprintable() and 0 < seconds <= _MAX_SECONDS
