"""Settings of a SQLite file, as in its URL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qsl, unquote, urlsplit

Synchronous = Literal['full', 'normal']
_FORM = "'sqlite:///relative/path.db' or 'sqlite:////absolute/path.db', with ?synchronous=normal if you like"


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteFile:
    """A database file with the write settings."""

    path: Path
    """Absolute path: the process may change the working directory."""
    synchronous: Synchronous = 'full'
    """`full`: answered writes survive a power failure. `normal`: they survive only the end of the process."""
    busy_timeout: float = 10.0
    """Seconds to wait for the write of another process."""

    @classmethod
    def of(cls, url: str) -> SqliteFile:
        """Read a URL.

        Raises:
            ValueError: The URL is malformed, or has an unknown option.
        """
        parts = urlsplit(url)
        path = unquote(parts.path)[1:]
        unnamed = not url.startswith('sqlite:///') or not path or path.endswith('/') or path == ':memory:'
        if unnamed or parts.fragment:
            raise ValueError(f'{url!r} names no file: write {_FORM}. For tasks in memory, write {"memory"!r}.')
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        return cls(path=Path(path).absolute(), synchronous=_synchronous(url, options))


def _synchronous(url: str, options: Mapping[str, str]) -> Synchronous:
    if unknown := sorted({*options} - {'synchronous'}):
        raise ValueError(f'{url!r} has the unknown option {unknown[0]!r}: the only option is synchronous.')
    chosen = options.get('synchronous', 'full').lower()
    if chosen not in ('full', 'normal'):
        raise ValueError(f"{url!r}: synchronous is 'full' or 'normal', not {chosen!r}.")
    return chosen
