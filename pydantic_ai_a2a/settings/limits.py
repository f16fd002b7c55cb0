"""Settings for limits: sizes, times and counts of requests, streams, queues and callers."""

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
"""Size of a message, in bytes, from which threads read and convert the message instead of the event loop."""


@checked
@dataclass(frozen=True)
class Rate:
    """A rate limit: `count` requests per time span."""

    count: int
    """Number of requests in the time span."""
    per: Span[timedelta] = Span()
    """Time span, in seconds or as a `timedelta`."""
    burst: int | None = field(default=None, kw_only=True)
    """Number of requests allowed at once after a pause. Default None: `count`."""

    def __post_init__(self) -> None:
        positive(self)


@checked
@dataclass(frozen=True, kw_only=True)
class Budget:
    """A budget for model usage of the runs of one caller, or of a whole tenant, within a sliding time window."""

    window: Span[timedelta] = Span()
    """Length of the window, in seconds or as a `timedelta`. Usage is counted up to a sixtieth longer."""
    requests: int | None = None
    """Requests to the model. Default None: not limited."""
    tokens: int | None = None
    """Tokens to and from the model. Default None: not limited."""
    cost: Decimal | float | None = None
    """US dollars, as far as Pydantic AI knows the prices of the model. Default None: not limited."""
    of: Literal['caller', 'tenant'] = 'caller'
    """Holder of the budget: each caller (`'caller'`, the default), or all callers of a tenant together (`'tenant'`)."""

    def __post_init__(self) -> None:
        positive(self)
        if self.requests is self.tokens is self.cost is None:
            raise ValueError('A Budget needs requests=, tokens= or cost=.')


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
    budgets: Sequence[Budget] = ()
    """Budgets for model usage. A run gets the rest of the budget and is `failed` once the budget is used up. Default:
    none."""
    anonymous_by_address: bool = False
    """True counts `rates` and `streams` of anonymous callers by the caller's IP address, of IPv6 by the first 64 bits.
    Behind a proxy the address is the proxy's, unless the server is configured to trust the proxy. Default False."""

    def __post_init__(self) -> None:
        positive(self)


@checked
@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of requests, messages, streams and queues, and quotas of callers."""

    body: int = 10_000_000
    """Largest request body, in bytes. A larger body gets HTTP 413 before the body is parsed. Default 10 MB."""
    body_time: Span[float] = Span(30.0)
    """Seconds within which a request body has to arrive. A slower request gets HTTP 408 after at most twice the time,
    and its connection is closed. Default 30."""
    answer_time: Span[float] = Span(60.0)
    """Seconds within which a client has to read a response of more than 64 KB; in a stream, each piece of more than 64
    KB. A slower response is cut off after at most twice the time, and its connection is closed. Default 60."""
    unsent: int = 64_000_000
    """Bytes of unread responses and stream pieces of more than 64 KB each that the process holds for all clients. Over
    the limit, the slowest readers are cut off: those that have read nothing for a second, or would not finish within
    `answer_time`. If the space is still too small, a new response is refused with HTTP 503, and a stream is closed; the
    client can resume the stream from its last event id. Default 64 MB."""
    values: int = 250_000
    """JSON values in a request body. A body with more gets HTTP 413, because values take much more memory than their
    text. Default 250,000."""
    parts: int = 1_000
    """Parts of a message. Default 1,000. A message over this or a following message limit is refused with error -32602
    before anything is stored."""
    text: int = 1_000_000
    """Longest text of a part, in characters. Default 1,000,000."""
    data: int = 1_000_000
    """Largest value of a data part, in bytes of JSON. Default 1 MB."""
    files: int = 100
    """Files in a message, inline or by URL. Default 100."""
    raw: int = 10_000_000
    """Largest inline file, in bytes after decoding. Default 10 MB."""
    download_time: Span[float] = Span(60.0)
    """Seconds for the download of all files by URL of one request to the model. A task whose downloads take longer is
    `failed`. Default 60."""
    metadata: int = 100_000
    """Largest metadata of a request, a message or a part, in bytes of JSON. Also limits the list of a message's
    extensions and the list of output modes. Default 100 KB."""
    depth: int = 32
    """Deepest nesting of objects and lists in data and metadata. Default 32; the official client reads no deeper
    objects."""
    references: int = 10
    """Tasks that a message may refer to. Default 10."""
    client_tools: int = 32
    """Tools that a message may declare, with `Messages.client_tools`. Default 32."""
    referenced: int = 1_000_000
    """Bytes of JSON of the referenced tasks' artifacts that reach the model, together. Further artifacts are left out.
    Default 1 MB."""
    queue: int = 10_000
    """Queued tasks. Over the limit, a new task is refused with HTTP 503 before anything is stored. Default 10,000."""
    messages: int = 32
    """Unread messages of one task; over the limit, a new message is refused with HTTP 503. Also the number of times
    that a waiting task repeats its question after an unclear answer; then unclear answers are refused with error
    -32602. Default 32."""
    memory: int = 1_000_000_000
    """Bytes of the store of `backend='memory'`, including conversations and answers. While the store is larger, new
    messages are refused with HTTP 503. `Retention` removes finished tasks. Files and databases have no such limit
    besides `Retention` and their disk. Default 1 GB."""
    page: int = 10_000_000
    """Bytes of messages and artifacts in one response of ListTasks. A larger page ends earlier, after at least one
    task, and the client asks for the next page. Default 10 MB."""
    reader_lag: int = 1_000_000
    """Bytes that the reader of an event stream may lag behind before the stream is closed. The reader can resume from
    its last event id. Default 1 MB."""
    keep_alive: Span[float] = Span(3.0)
    """Seconds between comments on an idle event stream. Default 3; the official client gives up after 5 seconds of
    silence."""
    max_wait: Span[float | None] = Span(None)
    """Seconds that a blocking send waits before the server returns the task as it is. Default None: until the task ends
    or asks the client for input."""
    cancel_grace: Span[float] = Span(5.0)
    """Seconds that CancelTask waits for the run to stop. Then the task is `canceled`, and a later result is dropped.
    Default 5."""
    quotas: Quotas | None = None
    """Quotas of each caller: requests, streams, tasks and model usage. Default None: no quotas."""

    def __post_init__(self) -> None:
        positive(self)
