"""Access to the app: hosts, web pages, protocol versions, scopes, owners, tenants, extended card and signatures."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from ..arguments import checked
from ..types.a2a_objects import AgentCard
from ..types.callers import Caller
from ..types.signing_keys import Key
from .credentials import Credentials

Owner: TypeAlias = Callable[[Caller], str]
"""A function that returns the owner of a caller's tasks, within the caller's tenant."""

TenantRule: TypeAlias = bool | Collection[str] | Callable[[Caller, str], bool | Awaitable[bool]]
"""The tenants that requests may name: any, the members of a collection, or those that a function allows a caller."""

MakeCard: TypeAlias = Callable[[Caller, AgentCard], Mapping[str, Any] | Awaitable[Mapping[str, Any] | None] | None]
"""A function of the caller and the public card that returns fields to replace, or None to refuse the caller."""

Version: TypeAlias = Literal['1.0', '0.3']
"""A protocol version, as `Major.Minor`."""

SUPPORTED: tuple[Version, ...] = get_args(Version)
"""The supported protocol versions, newest first."""


@checked
@dataclass(frozen=True, kw_only=True)
class Access:
    """Access to the app: hosts, web pages, protocol versions, scopes, owners, tenants, extended card and signatures."""

    allowed_hosts: Collection[str] | None = None
    """Names of hosts that the app answers for, such as `agent.example.com` or `*.example.com`. `localhost` and IP
    addresses are always allowed; a request for another host gets HTTP 421. Default None: the app answers for every
    host. `run` and `serve` allow no further host by default if they listen on a loopback address."""
    cors: Collection[str] = ()
    """Origins of web pages that may call the agent, such as `https://app.example.com`; `*` allows every page. Default:
    no origin."""
    versions: Collection[Version] = SUPPORTED
    """Protocol versions that the card declares and the server serves. Default `('1.0', '0.3')`. FastA2A's dialect is
    served with 0.3, the HTTP+JSON binding with 1.0. A request in another version is refused with error -32009."""
    scopes: Mapping[str, str | Collection[str]] | None = None
    """Scopes that callers need, by name of the A2A 1.0 operation; `*` stands for all operations without an entry. A
    caller without the scopes gets HTTP 403. Without an entry of their own, `SendStreamingMessage` needs the scopes of
    `SendMessage`, and `ListTasks` and `SubscribeToTask` need the scopes of `GetTask`. Default None: no scopes are
    needed."""
    owner: Owner | None = None
    """Function that returns the owner of a caller's tasks and conversations, within the caller's tenant. Callers of one
    tenant with the same owner share tasks, conversations and quotas. Default None: each caller is an owner."""
    tenants: TenantRule | None = None
    """Tenants that requests may name, in the path (`/acme/message:send`) or as `tenant` in the params; the caller then
    acts in the named tenant. True allows any tenant, a collection allows its members, and a function `(caller, name)`
    returns True to allow a tenant and may be async. A caller whose credentials name a tenant cannot name another
    tenant. Default None: tenants in requests have no effect."""
    anonymous_list: bool | None = None
    """True lets anonymous callers list tasks; the list has the tasks of all anonymous callers. False refuses them with
    HTTP 403, and the playground tells no steps of tasks to a developer. Default None: anonymous callers on this machine
    may list tasks, others get HTTP 403."""
    extended_card: MakeCard | Mapping[str, Any] | None = None
    """Extra card content for authenticated callers. Either a mapping merged into the public card (lists are appended),
    or a function `(caller, card)`, which may be async, that returns the fields to replace, or None to refuse the
    caller. Default None: the agent has no extended card."""
    signing: Sequence[Key] = field(default=(), repr=False)
    """Keys that sign the agent cards: texts of PEM files, or JSON Web Keys. All private keys sign. Public keys, such as
    keys of earlier signatures, are only served at `/.well-known/jwks.json`. Needs `url=` and the extra `jwt`. Default:
    cards have no signatures."""
    credentials: Credentials | None = None
    """Credentials that runs use on behalf of callers, such as access tokens for MCP servers. Default None: runs get no
    credentials."""
