"""The encrypted credentials of tasks."""

from __future__ import annotations

from ..ports import SealedCredential
from .task_rows import OF_TASK
from .transaction import Transaction, Write


def add_credential(agent: str, task_id: str, credential: SealedCredential) -> Write:
    """Store a credential of a task."""
    row = (agent, task_id, credential.id, credential.until, credential.body)
    return 'INSERT INTO credential (agent, task_id, id, until, body) VALUES (?, ?, ?, ?, ?)', [row]


def load_credentials(agent: str, task_id: str, credential_id: str) -> Transaction[SealedCredential | None]:
    """See `CredentialStore.load`."""
    rows = yield f'SELECT until, body FROM credential WHERE {OF_TASK} AND id = ?', (agent, task_id, credential_id)
    return SealedCredential(id=credential_id, until=rows[0][0], body=bytes(rows[0][1])) if rows else None


def drop_credentials(agent: str, task_id: str) -> Write:
    """Delete the credentials of a task."""
    return f'DELETE FROM credential WHERE {OF_TASK}', [(agent, task_id)]
