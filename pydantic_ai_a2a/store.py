"""The names for authors of backends: the ports, the backends of the package, and the JSON that a backend stores."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from .server.store import ports
from .server.store.ports import *  # noqa: F403 - the names of `ports.__all__`
from .wire.protocol import stored

if TYPE_CHECKING:
    from .server.store.postgres.backend import PostgresBackend
    from .server.store.sqlite.backend import SqliteFileBackend
    from .server.store.sqlite.memory import MemoryBackend
    from .server.store.sqlite.settings import SqliteFile
else:  # with `__getattr__`, type checkers would accept any name

    def __getattr__(name: str) -> object:
        """Return a backend, whose module is loaded at the first use: drivers are of extras."""
        if name not in _BACKENDS:
            raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
        return getattr(import_module(_BACKENDS[name], __package__), name)


__all__: list[str] = ['MemoryBackend', 'PostgresBackend', 'SqliteFile', 'SqliteFileBackend', 'stored']
__all__ += ports.__all__

_BACKENDS = {
    'MemoryBackend': '.server.store.sqlite.memory',
    'PostgresBackend': '.server.store.postgres.backend',
    'SqliteFile': '.server.store.sqlite.settings',
    'SqliteFileBackend': '.server.store.sqlite.backend',
}
