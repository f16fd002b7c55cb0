"""The stores of tasks, events, conversations and webhooks: in memory, in a SQLite file, in a PostgreSQL database.

Calls of the ports come in. Stored rows and published events go out.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from .ports import (
    DEAD_LETTER,
    DEAD_LETTERS,
    Accepted,
    Answer,
    Backend,
    Bucket,
    Charge,
    Checkpoint,
    Claim,
    CredentialStore,
    DeadDelivery,
    DeadLetter,
    Delivery,
    Ending,
    Erased,
    EventLog,
    ExportedConversation,
    ExportedTask,
    Finish,
    Housekeeping,
    Leased,
    Marks,
    OnExpired,
    Outbox,
    Pause,
    PushConfig,
    PushConfigs,
    QuotaStore,
    SealedCredential,
    Slot,
    Spent,
    Status,
    Submission,
    Subscription,
    Swept,
    Takes,
    TaskQueue,
    TaskReader,
    WrappedQueue,
)

if TYPE_CHECKING:
    from .postgres.backend import PostgresBackend
    from .sqlite.backend import SqliteFileBackend
    from .sqlite.connect import SqliteFile
    from .sqlite.memory import MemoryBackend

__all__ = (
    'DEAD_LETTER',
    'DEAD_LETTERS',
    'Accepted',
    'Answer',
    'Backend',
    'Bucket',
    'Charge',
    'Checkpoint',
    'Claim',
    'CredentialStore',
    'DeadDelivery',
    'DeadLetter',
    'Delivery',
    'Ending',
    'Erased',
    'EventLog',
    'ExportedConversation',
    'ExportedTask',
    'Finish',
    'Housekeeping',
    'Leased',
    'Marks',
    'MemoryBackend',
    'OnExpired',
    'Outbox',
    'Pause',
    'PostgresBackend',
    'PushConfig',
    'PushConfigs',
    'QuotaStore',
    'SealedCredential',
    'Slot',
    'Spent',
    'SqliteFile',
    'SqliteFileBackend',
    'Status',
    'Submission',
    'Subscription',
    'Swept',
    'Takes',
    'TaskQueue',
    'TaskReader',
    'WrappedQueue',
)

_BACKENDS = {
    'MemoryBackend': '.sqlite.memory',
    'PostgresBackend': '.postgres.backend',
    'SqliteFile': '.sqlite.connect',
    'SqliteFileBackend': '.sqlite.backend',
}


def __getattr__(name: str) -> object:
    """Return a backend, whose module is loaded at the first use: drivers are of extras."""
    if name not in _BACKENDS:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    return getattr(import_module(_BACKENDS[name], __name__), name)
