"""Settings of a PostgreSQL database. Importing this module needs no driver."""

from __future__ import annotations

import re
from dataclasses import KW_ONLY, dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from ...arguments import Span, checked

__all__ = ('Postgres',)

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
    """A PostgreSQL database, 14 or later, for `to_a2a(backend=...)`. Every process has connections of its own.

    Raises:
        ValueError: The URL has another form or an option that there is not, or a value makes no sense.
    """

    url: str = field(repr=False)
    """`postgresql://user:password@host:5432/database`.

    Options of it: `host` and `port` (for several hosts, or the folder of a socket), `user`, `password`, `passfile`,
    `application_name`, `target_session_attrs`, `sslmode`, `sslrootcert`, `sslcert`, `sslkey`, `sslcrl`.
    """
    _: KW_ONLY
    schema: str = 'a2a'
    """Schema of the tables; it is made if it is not there."""
    pool_size: int = 10
    """Connections that a process has at most, besides one that listens and one that renews leases."""
    connect_timeout: Span[float] = Span(5.0)
    """Seconds that a connection may take to be opened."""
    acquire_timeout: Span[float] = Span(10.0)
    """Seconds that a call waits for a connection, and for a database that is away; after that clients get HTTP 503."""
    statement_timeout: Span[float] = Span(30.0)
    """Seconds that one statement may take, with its wait for locks."""
    listen: bool = True
    """True: the database notifies processes of other processes' writes. False: processes ask every 250 milliseconds."""
    listen_dsn: str | None = field(default=None, repr=False)
    """The database's URL for the connection that listens, where `url` is that of a pooler."""
    statement_cache_size: int = 200
    """Prepared statements of a connection; 0 for a pooler that gives each transaction another connection."""

    def __post_init__(self) -> None:
        _check_url(self.url)
        if self.listen_dsn is not None:
            _check_url(self.listen_dsn)
        if not _SCHEMA.fullmatch(self.schema):
            raise ValueError(f'schema must be lower case letters, digits and underscores, not {self.schema!r}.')
        if self.statement_cache_size < 0:
            raise ValueError(f'statement_cache_size must be 0 or more, not {self.statement_cache_size!r}.')
        for name in ('pool_size', 'connect_timeout', 'acquire_timeout', 'statement_timeout'):
            if getattr(self, name) <= 0:
                raise ValueError(f'{name} must be more than 0, not {getattr(self, name)!r}.')

    @property
    def place(self) -> str:
        """Names the database in messages: where it is, and nothing that is secret."""
        parts = urlsplit(self.url)
        options = dict(parse_qsl(parts.query))
        address = parts.netloc.rpartition('@')[2] or ':'.join(
            options[name] for name in ('host', 'port') if name in options
        )
        return f'{address}/{unquote(parts.path[1:])} (schema {self.schema})'


def _check_url(url: str) -> None:
    """Refuse what is no URL of a database, without telling what it is: it may hold a password."""
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
