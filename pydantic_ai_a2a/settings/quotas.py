"""Quotas of each caller: requests, streams, tasks and model usage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..arguments import checked
from .budgets import Budget
from .positive_numbers import positive
from .rate_limits import Rate


@checked
@dataclass(frozen=True, kw_only=True)
class Quotas:
    """Quotas of each caller. A request over a quota is refused with HTTP 429 before anything is stored.

    All anonymous callers of a tenant count as one caller. Rates and streams are counted over all tenants that a
    caller's requests name, tasks and budgets in each tenant. All processes with one store count together, except for
    `streams`.
    """

    rates: Rate | Mapping[str, Rate] | None = None
    """Rate limit of requests: one for all operations together, or one for each A2A 1.0 operation; `*` limits all
    operations without an entry together. Unreadable requests and unknown operations count as `*`. Without an entry of
    their own, `SendStreamingMessage` counts as `SendMessage`, and `ListTasks` and `SubscribeToTask` count as `GetTask`.
    Default None: not limited."""
    streams: int | None = None
    """Open event streams and waiting blocking sends, together, in each process. Default None: not limited."""
    tasks: int | None = None
    """Queued and running tasks, counted together. Default None: not limited."""
    running: int | None = None
    """Running tasks. Further tasks of the caller are accepted and wait, while those of others run. Needs `auth=`.
    Default None: not limited."""
    budgets: Sequence[Budget] = ()
    """Budgets for model usage. A run gets the rest of the budget and is `failed` once the budget is used up. Default:
    none."""
    anonymous_by_address: bool = False
    """True counts `rates` and `streams` of anonymous callers by the caller's IP address, of IPv6 by the first 64 bits.
    Behind a proxy the address is the proxy's, unless the server is configured to trust the proxy. Default False."""

    def __post_init__(self) -> None:
        positive(self)
