"""Tests of the encrypted credentials of tasks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pydantic_ai_a2a.server.store.ports import Backend, SealedCredential, Submission
from pydantic_ai_a2a.server.store.ports.credentials import with_credential
from pydantic_ai_a2a.settings import Retention

from .base import PortSuite
from .values import OWNER, START, claim_and_finish, message, submit

__all__ = ('CredentialSuite',)


def with_sealed(submission: Submission, name: str = 'c', until: int = START + 1000) -> Submission:
    """A message with a credential."""
    credential = SealedCredential(id=name, until=until, body=name.encode())
    return replace(submission, credential=credential, request=with_credential(submission.request, credential))


async def stored_credentials(backend: Backend, *names: str, task_id: str = 't') -> list[bytes | None]:
    """The stored credentials of a task; None for each that is not there."""
    assert backend.credentials is not None
    loaded = [await backend.credentials.load(task_id, name) for name in names]
    return [None if credential is None else credential.body for credential in loaded]


class CredentialSuite(PortSuite):
    """Tests of `CredentialStore`, for backends with credentials."""

    async def test_credential_is_readable_only_for_its_task(self, backend: Backend) -> None:
        await submit(backend, with_sealed(message('a', new='t')))
        assert await stored_credentials(backend, 'c', 'd') == [b'c', None]
        assert await stored_credentials(backend, 'c', task_id='other') == [None]

    async def test_refused_message_stores_no_credential(self, backend: Backend) -> None:
        await submit(backend, message('a', new='t'))
        with pytest.raises(ValueError, match='no'):
            await submit(backend, replace(with_sealed(message('b', to='t')), refusal=ValueError('no')))
        assert await stored_credentials(backend, 'c') == [None]

    async def test_repeated_message_stores_no_second_credential(self, backend: Backend) -> None:
        await submit(backend, with_sealed(message('a', new='t')))
        await submit(backend, with_sealed(message('a', new='t'), 'd'))
        assert await stored_credentials(backend, 'c', 'd') == [b'c', None]

    async def test_end_of_task_deletes_its_credentials(self, backend: Backend) -> None:
        await submit(backend, with_sealed(message('a', new='t')))
        await claim_and_finish(backend, 't')
        assert await stored_credentials(backend, 'c') == [None]

    async def test_later_message_adds_second_credential_to_task(self, backend: Backend) -> None:
        await submit(backend, with_sealed(message('a', new='t')))
        await claim_and_finish(backend, 't', 'input-required')
        await submit(backend, with_sealed(message('b', to='t'), 'd'))
        assert await stored_credentials(backend, 'c', 'd') == [b'c', b'd']
        await claim_and_finish(backend, 't')
        assert await stored_credentials(backend, 'c', 'd') == [None, None]

    async def test_canceled_task_has_no_credentials(self, backend: Backend) -> None:
        await submit(backend, with_sealed(message('a', new='t')))
        await backend.queue.cancel('t', OWNER, at=START)
        assert await stored_credentials(backend, 'c') == [None]

    async def test_erased_task_has_no_credentials(self, backend: Backend) -> None:
        await submit(backend, with_sealed(message('a', new='t')))
        await claim_and_finish(backend, 't', 'input-required')
        await backend.housekeeping.erase_task('t', OWNER, at=START)
        assert await stored_credentials(backend, 'c') == [None]

    async def test_sweep_deletes_expired_credentials(self, backend: Backend) -> None:
        await submit(backend, with_sealed(message('a', new='t'), until=START + 5))
        await submit(backend, with_sealed(message('b', to='t'), 'd', until=START + 500))
        await backend.housekeeping.sweep(Retention(), at=START + 10)
        assert await stored_credentials(backend, 'c', 'd') == [None, b'd']
