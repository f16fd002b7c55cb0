"""Limits: what requests, streams, queues and callers may take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Literal

from ..arguments import Span, checked
from .numbers import positive

__all__ = ('LONG', 'Budget', 'Limits', 'Quotas', 'Rate')

LONG = 262_144
"""Bytes of a message from which on threads read and convert it, so that the event loop can serve other requests."""


@checked
@dataclass(frozen=True)
class Rate:
    """How often something may be done."""

    count: int
    """How many times."""
    per: Span[timedelta] = Span()
    """In which time."""
    burst: int | None = field(default=None, kw_only=True)
    """How many times at once, after nothing was done for a while; None: `count`."""

    def __post_init__(self) -> None:
        positive(self)


@checked
@dataclass(frozen=True, kw_only=True)
class Budget:
    """What the runs for one caller, or for all of a tenant together, may use of the model in any time so long."""

    window: Span[timedelta] = Span()
    """The time. What was used counts a sixtieth longer at most."""
    requests: int | None = None
    """Requests to the model."""
    tokens: int | None = None
    """Tokens to and from the model."""
    cost: Decimal | float | None = None
    """US dollars, as far as Pydantic AI knows what the model costs."""
    of: Literal['caller', 'tenant'] = 'caller'
    """Whose it is."""

    def __post_init__(self) -> None:
        positive(self)
        if self.requests is self.tokens is self.cost is None:
            raise ValueError('A Budget needs requests=, tokens= or cost=.')


@checked
@dataclass(frozen=True, kw_only=True)
class Quotas:
    """What each caller may have; over it, a request is refused with HTTP 429 before anything is stored.

    All callers of a tenant who are anonymous are one. Rates and streams are counted over all tenants that a caller's
    requests name, tasks and budgets in each of them. All processes with one store count together, but for `streams`.
    """

    rates: Rate | Mapping[str, Rate] | None = None
    """Requests, together or by operation of A2A 1.0; `*` is for those that are not named, together.
    What cannot be read, or may not be asked for, counts as `*`. `SendStreamingMessage` counts as `SendMessage`, and
    `ListTasks` and `SubscribeToTask` as `GetTask`, unless they are named themselves."""
    streams: int | None = None
    """Event streams that are open at once, and sends that wait for their tasks, together, in each process."""
    tasks: int | None = None
    """Tasks that are queued or run, counted together: `tasks=5` is five in all, however many of them wait for a run."""
    budgets: Sequence[Budget] = ()
    """What runs may use of the model. A run gets what is left, and is `failed` when that is used up."""
    anonymous_by_address: bool = False
    """Whether `rates` and `streams` count anonymous callers by their address as the server sees it, of IPv6 the first
    64 bits. Behind a proxy, that is the proxy's, unless the server is told to trust it."""

    def __post_init__(self) -> None:
        positive(self)


@checked
@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of one request, stream or queue, and of each caller."""

    body: int = 10_000_000
    """Largest request body, in bytes; a larger one is answered with HTTP 413 before it is parsed."""
    body_time: Span[float] = Span(30.0)
    """Seconds that a request body may take to come; one that takes up to twice as long is answered with HTTP 408, and
    its connection closed."""
    answer_time: Span[float] = Span(60.0)
    """Seconds that an answer of more than 64 KB may take to be read, in a stream each piece at once; one that takes up
    to twice as long is broken off, and its connection closed."""
    unsent: int = 64_000_000
    """Bytes of answers of more than 64 KB, and of such pieces of streams, that the process keeps for clients to read.
    To make room for a new answer, the slowest readers are cut: those that have taken nothing for a second, or would not
    finish within `answer_time`. If that is not enough, the new answer is refused with HTTP 503. A stream without room
    for its next piece is cut, and can resume from its last event id."""
    values: int = 250_000
    """JSON values in a request body; one with more is answered with HTTP 413 too, because each takes much more memory
    than its text."""
    parts: int = 1_000
    """Parts of a message. This and what a message holds otherwise is refused with -32602 before anything is stored."""
    text: int = 1_000_000
    """Longest text of a part, in characters."""
    data: int = 1_000_000
    """Largest value of a data part, in bytes of JSON."""
    files: int = 100
    """Files in a message, sent along or by URL."""
    raw: int = 10_000_000
    """Largest file that is sent along, in bytes once decoded."""
    download_time: Span[float] = Span(60.0)
    """Seconds that the files by URL of one request to the model may take to be downloaded, all together; a task whose
    files take longer is `failed`."""
    metadata: int = 100_000
    """Largest metadata of a request, a message or a part, in bytes of JSON; also the list of a message's extensions,
    and that of output modes."""
    depth: int = 32
    """How deep objects and lists may be nested in data and in metadata; the official client reads no more objects."""
    references: int = 10
    """Tasks that a message may refer to."""
    referenced: int = 1_000_000
    """Artifacts of those tasks that reach the model, in bytes of JSON, together; larger ones are left out."""
    queue: int = 10_000
    """Tasks that may wait to be run; over it a new one is refused with HTTP 503 before anything is stored."""
    messages: int = 32
    """Messages that may wait in one task; over it, too, a new one is refused with HTTP 503. A task that waits for its
    client asks again as often, if the client's words are no clear answer; then these are refused with -32602."""
    memory: int = 1_000_000_000
    """Bytes that the store of `backend='memory'` may take, with conversations and answers; while it has more, new
    messages are refused with HTTP 503. What is finished goes as `Retention` says. Files and databases are bounded by
    `Retention` and their disk alone."""
    page: int = 10_000_000
    """Bytes of messages and artifacts in one answer of ListTasks; a page with more ends earlier, after one task at
    least, and the client asks for the next."""
    reader_lag: int = 1_000_000
    """Bytes that a reader of an event stream may be behind; then its stream is closed. It can resume from its last
    event id."""
    keep_alive: Span[float] = Span(3.0)
    """Seconds between comments on an idle event stream; the official client gives up after 5 seconds of silence."""
    max_wait: Span[float | None] = Span(None)
    """Seconds that a blocking send waits before it answers with the task as it is; None: until it ends or asks."""
    cancel_grace: Span[float] = Span(5.0)
    """Seconds that CancelTask waits for the run to stop; then the task is `canceled` and a late result dropped."""
    quotas: Quotas | None = None
    """What each caller may have: requests, streams, tasks, and what runs use of the model. None: nobody is counted."""

    def __post_init__(self) -> None:
        positive(self)
