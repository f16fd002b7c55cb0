"""The encrypted credentials of tasks."""

from __future__ import annotations

from ...ports import SealedCredential
from .transaction import Transaction, Write

__all__ = ('add_credential', 'drop_credentials', 'load_credentials', 'sweep_credentials')


def add_credential(agent: str, task_id: str, credential: SealedCredential) -> Write:
    """Store a credential of a task."""
    row = (agent, task_id, credential.id, credential.until, credential.body)
    return 'INSERT INTO credential (agent, task_id, id, until, body) VALUES (?, ?, ?, ?, ?)', [row]


def load_credentials(agent: str, task_id: str, credential_id: str) -> Transaction[SealedCredential | None]:
    """See `CredentialStore.load`."""
    rows = yield (
        'SELECT until, body FROM credential WHERE agent = ? AND task_id = ? AND id = ?',
        (agent, task_id, credential_id),
    )
    return SealedCredential(id=credential_id, until=rows[0][0], body=bytes(rows[0][1])) if rows else None


def drop_credentials(agent: str, task_id: str) -> Write:
    """Delete the credentials of a task."""
    return 'DELETE FROM credential WHERE agent = ? AND task_id = ?', [(agent, task_id)]


def sweep_credentials(agent: str, *, at: int, limit: int) -> Transaction[int]:
    """Delete expired credentials, and return the number of rows."""
    rows = yield (
        'DELETE FROM credential WHERE agent = ? AND until <= ? AND (task_id, id) IN (SELECT task_id, id FROM credential'
        ' WHERE agent = ? AND until <= ? ORDER BY until LIMIT ?) RETURNING until',
        (agent, at, agent, at, limit),
    )
    return len(rows)
