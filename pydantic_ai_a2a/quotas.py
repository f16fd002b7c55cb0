"""What callers may still have: rates, open streams, tasks, and budgets of what runs use. Knows no wire and no agent.

The store counts, since several processes may serve the same callers; what that comes to is decided here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from decimal import Decimal
from ipaddress import IPv4Address, ip_address, ip_network
from typing import Any, Literal, NamedTuple

from .audit import audit
from .errors import QuotaExceededError
from .ports import Bucket, Charge, QuotaStore, Spent, amounts_of
from .protocol.operations import OPERATIONS
from .settings import Budget, Quotas, Rate
from .types import Caller

__all__ = ('Left', 'Metering', 'audit_refusal')

_ALL = '*'
_SLOTS = 60
"""Parts of a window in which everything is forgotten at once."""
_BILLION = 10**9
_KINDS: tuple[Literal['requests', 'tokens', 'cost'], ...] = ('requests', 'tokens', 'cost')


class Left(NamedTuple):
    """What a run may use at most; None: as much as it will."""

    requests: int | None
    tokens: int | None
    cost: Decimal | None
    """US dollars."""

    @property
    def nothing(self) -> bool:
        """Whether anything is used up."""
        return any(each is not None and each <= 0 for each in self)


class Metering:
    """Meters the callers of one app.

    Args:
        quotas: What they may have.
        store: Counts it.
        now: The time (ms).

    Raises:
        ValueError: There is a rate for what is no operation.
    """

    def __init__(self, quotas: Quotas, store: QuotaStore, now: Callable[[], int]) -> None:
        self._quotas = quotas
        self._store = store
        self.now = now
        self._rates = _rates(quotas.rates)
        self._streams: Counter[str] = Counter()
        self.task_limit = quotas.tasks
        """How many tasks of a caller may be queued or running."""

    # --- requests and streams ---------------------------------------------------------------------------------------

    def subject(self, caller: Caller, address: str | None) -> str:
        """Who is counted by rates and streams."""
        if not (caller.anonymous and self._quotas.anonymous_by_address and address):
            return caller.owner
        return f'{caller.owner} {_network(address)}'

    async def admit(self, operation: str, subject: str) -> None:
        """Count a request; `*` is one that is refused before it is known what it asks for.

        Raises:
            QuotaExceededError: There were too many.
        """
        if (found := self._rates.get(operation)) is None:
            return
        name, interval, burst = found
        wait = await self._store.take(Bucket(subject, name, interval, burst), at=self.now())
        if wait:
            raise QuotaExceededError.of(f'rates.{name}', wait)

    @contextmanager
    def stream(self, subject: str) -> Generator[None]:
        """Count a stream, or a send that waits for its task, as long as it is open.

        Raises:
            QuotaExceededError: There are too many.
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
        """See that there is something left for a run.

        Raises:
            QuotaExceededError: There is not.
        """
        for budget in self._quotas.budgets:
            spent = await self._spent(budget, owner)
            for kind in _KINDS:
                if (until := _used_up(spent, kind, budget)) is not None:
                    raise QuotaExceededError.of(f'budgets.{kind}', until - self.now())

    async def left(self, owner: str) -> Left | None:
        """What a run may use now; None if there are no budgets."""
        if not self._quotas.budgets:
            return None
        left: dict[str, list[int]] = {kind: [] for kind in _KINDS}
        for budget in self._quotas.budgets:
            spent = await self._spent(budget, owner)
            for kind in _KINDS:
                if (most := _most(budget, kind)) is not None:
                    left[kind].append(most - _total(spent, kind))
        requests, tokens, cost = (min(each, default=None) for each in left.values())
        return Left(requests, tokens, None if cost is None else Decimal(cost) / _BILLION)

    def charges(self, owner: str, usage: Any) -> Sequence[Charge]:
        """What a run has used, Pydantic AI's `RunUsage`, for each of the budgets that there are."""
        now, amounts = self.now(), amounts_of(usage)
        accounts = {(_whose(budget, owner), _ms(budget.window)) for budget in self._quotas.budgets}
        if not any(amounts):
            return []
        return [Charge(subject, window, _until(now, window), *amounts) for subject, window in accounts]

    async def charge(self, owner: str, usage: Any) -> None:
        """Charge what was used by a run of no task."""
        await self._store.charge(self.charges(owner, usage))

    async def settle(self, task_id: str, run: int, owner: str, usage: Any) -> None:
        """Charge what was used by a run that somebody else has ended; once, however often this is said."""
        await self._store.settle(task_id, run, self.charges(owner, usage))

    async def _spent(self, budget: Budget, owner: str) -> Sequence[Spent]:
        return await self._store.spent(_whose(budget, owner), _ms(budget.window), at=self.now())


def audit_refusal(error: QuotaExceededError, caller: Caller, address: str | None, correlation_id: str) -> None:
    """Record that a caller was refused."""
    audit(
        'quota-exceeded',
        correlation_id=correlation_id,
        remote=address,
        quota=error.metadata['quota'],
        caller=caller.id or None,
        tenant=caller.tenant or None,
    )


def _rates(rates: Rate | Mapping[str, Rate] | None) -> dict[str, tuple[str, int, int]]:
    """For each operation the name of its bucket, the microseconds of a request in it, and how many it holds."""
    given = {_ALL: rates} if isinstance(rates, Rate) else rates or {}
    if unknown := given.keys() - OPERATIONS.keys() - {_ALL}:
        raise ValueError(f'Quotas.rates has {min(unknown)!r}, which is no operation: {", ".join(OPERATIONS)}, or *.')
    names = {name: (name, operation.counts_as, _ALL) for name, operation in OPERATIONS.items()} | {_ALL: (_ALL,)}
    buckets: dict[str, tuple[str, int, int]] = {}
    for operation, candidates in names.items():
        name = next((candidate for candidate in candidates if candidate in given), None)
        if name is not None:
            rate = given[name]
            interval = max(1, rate.per // timedelta(microseconds=1) // rate.count)
            buckets[operation] = (name, interval, rate.burst or rate.count)
    return buckets


def _network(address: str) -> str:
    """Who has the address: of IPv6, whoever has one has all with the same first 64 bits."""
    try:
        known = ip_address(address.partition('%')[0])
    except ValueError:
        return address
    mapped = known if isinstance(known, IPv4Address) else known.ipv4_mapped
    return str(mapped or ip_network((known, 64), strict=False))


def _whose(budget: Budget, owner: str) -> str:
    """The subject of a budget: an owner, or its tenant, whose name has no slash."""
    return owner if budget.of == 'caller' else owner.partition('/')[0]


def _ms(time: timedelta) -> int:
    return time // timedelta(milliseconds=1)


def _until(now: int, window: int) -> int:
    """When that is forgotten which is used now: not before the window has passed, and together with some more."""
    slot = max(1, window // _SLOTS)
    return (now // slot + 1) * slot + window


def _most(budget: Budget, kind: Literal['requests', 'tokens', 'cost']) -> int | None:
    if kind == 'cost':
        return None if budget.cost is None else int(Decimal(str(budget.cost)) * _BILLION)
    return budget.requests if kind == 'requests' else budget.tokens


def _total(spent: Sequence[Spent], kind: str) -> int:
    return sum(getattr(each, kind) for each in spent)


def _used_up(spent: Sequence[Spent], kind: Literal['requests', 'tokens', 'cost'], budget: Budget) -> int | None:
    """When there is something left again (ms); None if there is now."""
    most, total, until = _most(budget, kind), _total(spent, kind), None
    for each in spent:
        if most is None or total < most:
            break
        total, until = total - getattr(each, kind), each.until
    return until
