"""Settings of who reaches an app, and what callers may do there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from fasta2a.schema import AgentCard

from ..arguments import checked
from ..types import Caller

__all__ = ('SUPPORTED', 'Access', 'MakeCard', 'Owner', 'TenantRule', 'Version')

Owner: TypeAlias = Callable[[Caller], str]
"""Returns the owner of a caller's tasks, within the caller's tenant."""

TenantRule: TypeAlias = bool | Collection[str] | Callable[[Caller, str], bool | Awaitable[bool]]
"""The tenants that requests may name: any, those of a collection, or those that a function allows a caller."""

MakeCard: TypeAlias = Callable[[Caller, AgentCard], Mapping[str, Any] | Awaitable[Mapping[str, Any] | None] | None]
"""Makes a caller's card of the public one: what it returns stands in the place of the public card's fields. None: this
caller has none."""

Version: TypeAlias = Literal['1.0', '0.3']
"""A protocol version, as `Major.Minor`."""

SUPPORTED: tuple[Version, ...] = get_args(Version)
"""The versions that can be served; the newest first."""


@checked
@dataclass(frozen=True, kw_only=True)
class Access:
    """How the app is reached, and what its callers may do."""

    allowed_hosts: Collection[str] | None = None
    """Names of the hosts that the app answers for, such as `agent.example.com` or `*.example.com`, beside `localhost`
    and IP addresses; others get HTTP 421. None answers for every host, but `run` and `serve` do not on an address that
    is reached from this machine only."""
    cors: Collection[str] = ()
    """Origins whose web pages may call the agent, such as `https://app.example.com`; `*` is every page."""
    versions: Collection[Version] = SUPPORTED
    """Protocol versions that the card declares and the server serves: `('1.0', '0.3')` or one of them. FastA2A's
    dialect is served with 0.3, HTTP+JSON with 1.0. A request in another version is refused with -32009."""
    scopes: Mapping[str, str | Collection[str]] | None = None
    """Scopes that callers need, by operation of A2A 1.0 (`*`: all that are not named); else HTTP 403.
    `SendStreamingMessage` needs those of `SendMessage`, and `ListTasks` and `SubscribeToTask` those of `GetTask`,
    unless they are named themselves."""
    owner: Owner | None = None
    """A function that says whose a caller's tasks and conversations are, within the caller's tenant: all callers of the
    tenant for whom it returns the same name share them, and what quotas allow. None: each caller's are its own."""
    tenants: TenantRule | None = None
    """Tenants that requests may name, in the path (`/acme/message:send`) or as `tenant` in their params, so that a
    caller acts in the one that it names: True for any, a collection of names, or a function of the caller and the
    name, which may be async. Credentials that say a tenant hold: such a caller may name no other one. None: what
    requests name means nothing."""
    anonymous_list: bool | None = None
    """True: callers that nobody vouches for may list tasks, which shows each of them those of all; False: HTTP 403.
    None: those on this machine may."""
    extended_card: MakeCard | Mapping[str, Any] | None = None
    """What callers that are known may read of the agent besides: a function of the caller and the public card that
    returns what stands in the place of the card's fields, or None for nobody's card; or what every one of them reads
    more, whose lists go on those of the public card."""
