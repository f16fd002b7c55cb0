"""Settings of a PostgreSQL database. Importing this module needs no driver."""

from __future__ import annotations

import re
from dataclasses import KW_ONLY, dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from ....arguments import checked
from ....time_spans import Span

_FORM = 'postgresql://user:password@host:5432/database'
_OF_URLS = frozenset({
    'application_name',
    'host',
    'passfile',
    'password',
    'port',
    'sslcert',
    'sslcrl',
    'sslkey',
    'sslmode',
    'sslrootcert',
    'target_session_attrs',
    'user',
})  # fmt: skip
_SCHEMA = re.compile('[a-z_][a-z0-9_]{0,62}')


@checked
@dataclass(frozen=True)
class Postgres:
    """A PostgreSQL database, 14 or later, for `to_a2a(backend=...)`. Each process opens separate connections.

    Raises:
        ValueError: The URL has a wrong form or an unknown option, or a value is out of range.
    """

    url: str = field(repr=False)
    """`postgresql://user:password@host:5432/database`.

    Options of it: `host` and `port` (for several hosts, or the folder of a socket), `user`, `password`, `passfile`,
    `application_name`, `target_session_attrs`, `sslmode`, `sslrootcert`, `sslcert`, `sslkey`, `sslcrl`.
    """
    _: KW_ONLY
    schema: str = 'a2a'
    """Schema of the tables, created if missing. Default `a2a`."""
    pool_size: int = 8
    """Limit of connections for each process, without the listening and the lease-renewing connection. Default 8.

    All apps with equal settings share the connections.
    """
    connect_timeout: Span[float] = Span(5.0)
    """Time limit for opening a connection, in seconds. Default 5."""
    acquire_timeout: Span[float] = Span(10.0)
    """Seconds to wait for a free connection or an unreachable database, before clients get HTTP 503. Default 10."""
    statement_timeout: Span[float] = Span(30.0)
    """Time limit for a statement with the wait for locks, in seconds. Default 30."""
    listen: bool = True
    """True: the database notifies processes of other processes' writes. False: processes ask every 250 milliseconds."""
    listen_dsn: str | None = field(default=None, repr=False)
    """URL of the database for the listening connection, if `url` is a pooler."""
    statement_cache_size: int = 200
    """Prepared statements for each connection. Set to 0 for a pooler in transaction mode. Default 200."""

    def __post_init__(self) -> None:
        _check_database_url(self.url)
        if self.listen_dsn is not None:
            _check_database_url(self.listen_dsn)
        if not _SCHEMA.fullmatch(self.schema):
            raise ValueError(f'schema must be lower case letters, digits and underscores, not {self.schema!r}.')
        if self.statement_cache_size < 0:
            raise ValueError(f'statement_cache_size must be 0 or more, not {self.statement_cache_size!r}.')
        for name in ('pool_size', 'connect_timeout', 'acquire_timeout', 'statement_timeout'):
            if getattr(self, name) <= 0:
                raise ValueError(f'{name} must be more than 0, not {getattr(self, name)!r}.')

    @property
    def place(self) -> str:
        """Host and name of the database for messages, without secrets."""
        parts = urlsplit(self.url)
        options = dict(parse_qsl(parts.query))
        address = parts.netloc.rpartition('@')[2] or ':'.join(
            options[name] for name in ('host', 'port') if name in options
        )
        return f'{address}/{unquote(parts.path[1:])} (schema {self.schema})'


def _check_database_url(url: str) -> None:
    """Refuse a wrong URL, without the URL in the error: a URL may have a password."""
    scheme, _, rest = url.partition('://')
    if scheme not in ('postgresql', 'postgres') or not rest:
        fault = f'begins with {scheme!r}' if rest else "has no '://' or nothing after it"
        raise ValueError(f'The URL of a PostgreSQL database has the form {_FORM}; this one {fault}.')
    parts = urlsplit(url)
    if parts.fragment or '/' in parts.path[1:]:
        raise ValueError(
            f'The URL of a PostgreSQL database has the form {_FORM}; special characters are written as %2F.'
        )
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := sorted({*options} - _OF_URLS):
        raise ValueError(
            f'The URL of the PostgreSQL database has the unknown option {unknown[0]!r}; there are'
            f' {", ".join(sorted(_OF_URLS))}. All others are arguments of Postgres(url, ...).'
        )
