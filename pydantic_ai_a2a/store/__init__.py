"""The stores of tasks, events, conversations and webhooks: in memory, in a SQLite file, in a PostgreSQL database.

Calls of the ports come in. Stored rows and published events go out.

`ports` has the contract, `sql` the transactions of all databases, and `sqlite` and `postgres` execute them. The modules
beside these folders are for several of them: what processes share (`shared_backend`), what a process remembers
(`event_bus`, `history_cache`), and the forms of stored values.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from . import ports
from .ports import *  # noqa: F403 - the names of `ports.__all__`

if TYPE_CHECKING:
    from .postgres.backend import PostgresBackend
    from .sqlite.backend import SqliteFileBackend
    from .sqlite.memory import MemoryBackend
    from .sqlite.settings import SqliteFile

__all__: list[str] = ['MemoryBackend', 'PostgresBackend', 'SqliteFile', 'SqliteFileBackend']
__all__ += ports.__all__

_BACKENDS = {
    'MemoryBackend': '.sqlite.memory',
    'PostgresBackend': '.postgres.backend',
    'SqliteFile': '.sqlite.settings',
    'SqliteFileBackend': '.sqlite.backend',
}


def __getattr__(name: str) -> object:
    """Return a backend, whose module is loaded at the first use: drivers are of extras."""
    if name not in _BACKENDS:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    return getattr(import_module(_BACKENDS[name], __name__), name)
