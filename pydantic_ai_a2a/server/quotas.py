"""Decides on the quotas of callers: rates, open streams, tasks, and budgets for model usage.

The store counts, because several processes may serve the same callers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from decimal import Decimal
from ipaddress import IPv4Address, ip_address, ip_network
from typing import Any, Literal

from ..errors import QuotaExceededError
from ..settings.budgets import Budget
from ..settings.quotas import Quotas
from ..settings.rate_limits import Rate
from ..types.callers import Caller
from ..wire.protocol.operations import OPERATIONS
from .audit import audit
from .budget_rest import Left
from .store.ports import Bucket, Charge, QuotaStore, Spent
from .store.ports.failed_tries import Tried
from .store.ports.quotas import amounts_of

_ALL = '*'
_SLOTS = 60
"""Slots of a window. Usage of one slot expires together."""
_BILLION = 10**9
_KINDS: tuple[Literal['requests', 'tokens', 'cost'], ...] = ('requests', 'tokens', 'cost')


class Metering:
    """Counts the requests, streams and usage of callers of one app.

    Args:
        quotas: The quotas of each caller.
        store: Stores the counts.
        now: The time (ms).

    Raises:
        ValueError: A rate names an unknown operation.
    """

    def __init__(self, quotas: Quotas, store: QuotaStore, now: Callable[[], int]) -> None:
        self._quotas = quotas
        self._store = store
        self.now = now
        self._rates = _rates(quotas.rates)
        self._streams: Counter[str] = Counter()
        self.task_limit = quotas.tasks
        """Most tasks of a caller that may be queued or running."""

    # --- requests and streams ---------------------------------------------------------------------------------------

    def subject(self, caller: Caller, address: str | None) -> str:
        """Return the subject that rates and streams of the caller are counted for."""
        if not (caller.anonymous and self._quotas.anonymous_by_address and address):
            return caller.owner
        return f'{caller.owner} {_network(address)}'

    async def admit(self, operation: str, subject: str) -> None:
        """Count a request. The operation is `*` if the request is refused before its operation is read.

        Raises:
            QuotaExceededError: The rate limit is exceeded.
        """
        if (rate := self._rates.get(operation)) is None:
            return
        name, interval, burst = rate
        wait = await self._store.take(Bucket(subject, name, interval, burst), at=self.now())
        if wait:
            raise QuotaExceededError.of(f'rates.{name}', wait)

    @contextmanager
    def stream(self, subject: str) -> Generator[None]:
        """Count a stream, or a blocking send, while it is open.

        Raises:
            QuotaExceededError: The caller has too many open streams.
        """
        if self._quotas.streams is not None and self._streams[subject] >= self._quotas.streams:
            raise QuotaExceededError.of('streams', 1000)
        self._streams[subject] += 1
        try:
            yield
        finally:
            self._streams[subject] -= 1
            if not self._streams[subject]:
                del self._streams[subject]

    # --- runs -------------------------------------------------------------------------------------------------------

    async def check_budgets(self, owner: str) -> None:
        """Check that every budget has a rest for a run.

        Raises:
            QuotaExceededError: A budget is used up.
        """
        for budget in self._quotas.budgets:
            spent = await self._spent(budget, owner)
            for kind in _KINDS:
                if (until := _used_up(spent, kind, budget)) is not None:
                    raise QuotaExceededError.of(f'budgets.{kind}', until - self.now())

    async def left(self, owner: str, tried: Tried | None = None) -> Left | None:
        """Return the rest of the budgets for a run, which has paid for its failed tries; None without budgets."""
        if not self._quotas.budgets:
            return None
        rests: dict[str, list[int]] = {kind: [] for kind in _KINDS}
        for budget in self._quotas.budgets:
            spent = await self._spent(budget, owner)
            for kind in _KINDS:
                if (most := _most(budget, kind)) is not None:
                    rests[kind].append(most - _total(spent, kind))
        requests, tokens, cost = (min(amounts, default=None) for amounts in rests.values())
        left = Left(requests, tokens, None if cost is None else Decimal(cost) / _BILLION)
        return left if tried is None else left.with_paid(tried.usage)

    def charges(self, owner: str, usage: Any) -> Sequence[Charge]:
        """Return the charges for a run's usage, Pydantic AI's `RunUsage`: one for each account of a budget."""
        now, amounts = self.now(), amounts_of(usage)
        accounts = {(_whose(budget, owner), _ms(budget.window)) for budget in self._quotas.budgets}
        if not any(amounts):
            return []
        return [Charge(subject, window, _until(now, window), *amounts) for subject, window in accounts]

    async def charge(self, owner: str, usage: Any) -> None:
        """Charge the usage of a run without a task."""
        await self._store.charge(self.charges(owner, usage))

    async def settle(self, task_id: str, run: int, owner: str, usage: Any) -> None:
        """Charge the usage of a run whose task another process has ended. Repeated calls charge once."""
        await self._store.settle(task_id, run, self.charges(owner, usage))

    async def _spent(self, budget: Budget, owner: str) -> Sequence[Spent]:
        return await self._store.spent(_whose(budget, owner), _ms(budget.window), at=self.now())


def audit_refusal(error: QuotaExceededError, caller: Caller, address: str | None, correlation_id: str) -> None:
    """Record in the audit log that a quota has refused a caller."""
    audit(
        'quota-exceeded',
        correlation_id=correlation_id,
        remote=address,
        quota=error.metadata['quota'],
        caller=caller.id or None,
        tenant=caller.tenant or None,
    )


def _rates(rates: Rate | Mapping[str, Rate] | None) -> dict[str, tuple[str, int, int]]:
    """Return, by operation, the name of its bucket, the microseconds per request, and the size of the bucket."""
    by_name = {_ALL: rates} if isinstance(rates, Rate) else rates or {}
    if unknown := by_name.keys() - OPERATIONS.keys() - {_ALL}:
        raise ValueError(
            f'Quotas.rates has {min(unknown)!r}, which is not an operation: use {", ".join(OPERATIONS)}, or *.'
        )
    names = {name: (name, operation.counts_as, _ALL) for name, operation in OPERATIONS.items()} | {_ALL: (_ALL,)}
    buckets: dict[str, tuple[str, int, int]] = {}
    for operation, candidates in names.items():
        name = next((candidate for candidate in candidates if candidate in by_name), None)
        if name is not None:
            rate = by_name[name]
            interval = max(1, rate.per // timedelta(microseconds=1) // rate.count)
            buckets[operation] = (name, interval, rate.burst or rate.count)
    return buckets


def _network(address: str) -> str:
    """Return the network of an address. A holder of an IPv6 address holds all addresses with the same first 64 bits."""
    try:
        ip = ip_address(address.partition('%')[0])
    except ValueError:
        return address
    mapped = ip if isinstance(ip, IPv4Address) else ip.ipv4_mapped
    return str(mapped or ip_network((ip, 64), strict=False))


def _whose(budget: Budget, owner: str) -> str:
    """Return the subject of a budget: an owner, or its tenant, whose name has no slash."""
    return owner if budget.of == 'caller' else owner.partition('/')[0]


def _ms(time: timedelta) -> int:
    return time // timedelta(milliseconds=1)


def _until(now: int, window: int) -> int:
    """Return the expiry of usage at `now`: the end of its slot, one window later."""
    slot = max(1, window // _SLOTS)
    return (now // slot + 1) * slot + window


def _most(budget: Budget, kind: Literal['requests', 'tokens', 'cost']) -> int | None:
    if kind == 'cost':
        return None if budget.cost is None else int(Decimal(str(budget.cost)) * _BILLION)
    return budget.requests if kind == 'requests' else budget.tokens


def _total(spent: Sequence[Spent], kind: str) -> int:
    return sum(getattr(slot, kind) for slot in spent)


def _used_up(spent: Sequence[Spent], kind: Literal['requests', 'tokens', 'cost'], budget: Budget) -> int | None:
    """Return the time when a used-up budget has a rest again (ms); None if it has one now."""
    most, total, until = _most(budget, kind), _total(spent, kind), None
    for slot in spent:
        if most is None or total < most:
            break
        total, until = total - getattr(slot, kind), slot.until
    return until
