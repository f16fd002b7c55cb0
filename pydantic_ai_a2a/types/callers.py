"""Callers, as authentication finds them, and as they are stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from string import printable
from typing import Any
from urllib.parse import quote, unquote

from pydantic_core import from_json

_PLAIN = printable.replace('%', '')
"""Characters of names that are stored unchanged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The caller of a request, as returned by `auth=`.

    The owner of tasks and conversations is a pair (tenant, id), or (tenant, owner) with `Access.owner`.
    """

    id: str = ''
    """Stable name of the caller; empty for an anonymous one."""
    tenant: str = ''
    """The tenant that the caller acts in; empty without tenants."""
    owns_as: str = field(default='', compare=False)
    """The owner of the caller's tasks and conversations, within the tenant. Empty: the caller itself. Set by
    `Access.owner`."""
    scopes: frozenset[str] = field(default=frozenset(), compare=False)
    """The scopes of the caller's credentials."""
    claims: Mapping[str, Any] = field(default_factory=dict[str, Any], compare=False, repr=False)
    """Verified facts about the caller, such as claims of a token: a JSON object of at most 10,000 bytes. The claims are
    stored with the tasks of the caller. Personal data belongs here, and not into logs."""

    @property
    def anonymous(self) -> bool:
        """True for a caller without an id. All anonymous callers of a tenant share one owner."""
        return not self.id

    @property
    def owner(self) -> str:
        """The key under which the caller's tasks and conversations are stored."""
        own = self.owns_as or self.id
        return f'{_quoted(self.tenant)}/{_quoted(own)}' if self.tenant or own else '/'

    @classmethod
    def of(cls, owner: str) -> Caller:
        """Return a caller with the tasks and conversations of an owner's key."""
        tenant, _, name = owner.partition('/')
        return cls(id=unquote(name, errors='surrogatepass'), tenant=unquote(tenant, errors='surrogatepass'))


ANONYMOUS = Caller()


def dump_caller(caller: Caller) -> dict[str, Any]:
    """Return a caller as JSON values, to be stored."""
    fields: dict[str, Any] = {
        'id': _quoted(caller.id, _PLAIN),
        'tenant': _quoted(caller.tenant, _PLAIN),
        'owns_as': _quoted(caller.owns_as, _PLAIN),
        'scopes': sorted(_quoted(scope, _PLAIN) for scope in caller.scopes),
    }
    if caller.claims:
        fields['claims'] = dict(caller.claims)
    return fields


def sender_of(request: bytes | None) -> dict[str, Any] | None:
    """Return the sender in the stored fields of a request, as `dump_caller` writes; None if none is stored."""
    return None if request is None else from_json(request).get('call', {}).get('caller')


def load_caller(stored: Mapping[str, Any]) -> Caller:
    """Return a caller from the values of `dump_caller`."""
    names = {name: unquote(stored[name], errors='surrogatepass') for name in ('id', 'tenant', 'owns_as')}
    scopes = frozenset(unquote(scope, errors='surrogatepass') for scope in stored['scopes'])
    return Caller(**names, scopes=scopes, claims=stored.get('claims', {}))


def _quoted(name: str, plain: str = '') -> str:
    # Names of callers, such as the claims of a token, may have lone surrogates. UTF-8 cannot encode lone surrogates.
    return quote(name, safe=plain, errors='surrogatepass')
