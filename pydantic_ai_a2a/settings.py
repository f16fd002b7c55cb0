"""What a user may set beyond an agent and a card: frozen, keyword-only, documented where it is defined."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Literal, TypeAlias

from .arguments import Span, checked

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = (
    'LONG',
    'Budget',
    'Limits',
    'Progress',
    'Push',
    'Quotas',
    'Rate',
    'Results',
    'Retention',
    'TextStream',
    'WhileWorking',
    'Workers',
)

LONG = 262_144
"""Bytes of a message from which on threads read and convert it, so that the event loop can serve other requests."""

WhileWorking: TypeAlias = Literal['queue', 'steer', 'reject']
"""What becomes of a message to a task that is queued or runs."""

TextStream: TypeAlias = Literal['replace', 'mark', 'whole']
"""The forms in which the text of an answer is streamed: see `Results.stream`."""


def _positive(settings: DataclassInstance, *, or_zero: Collection[str] = ()) -> None:
    """Refuse a number or time span that is not positive; those named, and those whose default is 0, may be 0."""
    for setting in fields(settings):
        value = getattr(settings, setting.name)
        number = value.total_seconds() if isinstance(value, timedelta) else value
        if isinstance(number, bool) or not isinstance(number, int | float | Decimal):
            continue
        zero = setting.default == 0 or setting.name in or_zero
        if number < 0 or (number == 0 and not zero):
            wanted = '0 or more' if zero else 'positive'
            raise ValueError(f'{type(settings).__name__}.{setting.name} must be {wanted}, not {number!r}.')


@checked
@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one request, stream or queue may take."""

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

    def __post_init__(self) -> None:
        _positive(self)


@checked
@dataclass(frozen=True, kw_only=True)
class Retention:
    """How long what is stored is kept. Tasks that wait or run are never swept for age or count of finished ones."""

    tasks: Span[timedelta] = Span(timedelta(days=7))
    """How long a finished task can be read."""
    max_tasks: int = 10_000
    """How many finished tasks are kept at most; the oldest go first."""
    events: Span[timedelta] = Span(timedelta(minutes=1))
    """How long after its end a task's event log can be resumed; then the assembled task serves."""
    contexts: Span[timedelta] = Span(timedelta(days=30))
    """How long a conversation is kept after its last use; never dropped while one of its tasks lives."""
    max_contexts: int = 10_000
    """How many conversations are kept at most; the longest unused go first."""
    waiting: Span[timedelta] = Span(timedelta(days=7))
    """How long a task may wait for its client before it is `failed`; and how long one that has ended is kept at most,
    whatever its age and their number, until its webhooks have been told so."""
    idempotency_window: Span[timedelta] = Span(timedelta(minutes=10))
    """Time in which a new task's message that an anonymous client sends again is answered with its first task. An
    authenticated caller's message, and one with a `taskId`, is recognised as long as the task is kept. Zero turns that
    off for all callers: each message that arrives is a new one."""

    def __post_init__(self) -> None:
        _positive(self, or_zero=('idempotency_window',))


@checked
@dataclass(frozen=True, kw_only=True)
class Workers:
    """How tasks are run in this process."""

    running: int = 256
    """Tasks that run at once in this process. Synchronous tools share anyio's 40 threads all the same."""
    drain_grace: Span[float] = Span(20.0)
    """Seconds that running tasks get to finish when the server shuts down."""
    drain_delay: Span[float] = Span(0.0)
    """Seconds that a server goes on serving after SIGTERM, with `/health/ready` at HTTP 503, before it drains: time for
    a load balancer to notice."""
    lease: Span[float] = Span(30.0)
    """Seconds after which another process may take over a task whose holder has not renewed its lease."""
    attempts: int = 3
    """How often a task is started at most, the first time among them: once more after each process that was lost with
    it. Then it is `failed`, a dead letter."""

    def __post_init__(self) -> None:
        _positive(self)


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
        _positive(self)


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
        _positive(self)
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
        _positive(self)


@checked
@dataclass(frozen=True, kw_only=True)
class Progress:
    """What clients that watch a task see of its run, beside the answer: status updates, which are not kept."""

    thinking: bool = False
    """The model's thoughts, each as a whole, without signatures."""
    tools: bool = False
    """Calls of tools, with their arguments unless `hide_arguments` names the tool; and that they returned, not what."""


@checked
@dataclass(frozen=True, kw_only=True)
class Results:
    """Settings for results of runs on their way to clients. The stored task is the same with all values of `stream`."""

    stream: TextStream = 'replace'
    """Form in which clients that watch a task get the text of an answer.

    `'replace'`: in pieces, and then the whole text once more, in the place of the pieces. `'mark'`: in pieces, and then
    an empty last piece. `'whole'`: the whole text when it is complete, without pieces.
    """
    interval: Span[float] = Span(0.1)
    """Seconds for which text is gathered into one piece. The first piece is sent at once. With 0, each piece of the
    model's is sent as it is."""
    size: int = 500
    """Characters of gathered text that are sent before `interval` has passed."""
    data_as_text: bool = False
    """True: a data part is followed by a text part with the same JSON, for clients that read only text."""

    def __post_init__(self) -> None:
        _positive(self, or_zero=('interval',))


@checked
@dataclass(frozen=True, kw_only=True)
class Push:
    """How clients are told of their tasks at URLs of theirs (§4.3.3)."""

    timeout: Span[float] = Span(15.0)
    """Seconds that one try may take, from looking up the host's name to the answer."""
    tries: int = 8
    """How often an event is tried; then it is dead, and the command `dead-deliveries` lists it and tries it again."""
    backoff: Span[float] = Span(1.0)
    """Seconds before the second try; each pause after is four times as long, at most an hour, and up to a half longer
    or shorter by chance."""
    at_once: int = 32
    """Deliveries that this process tries at once; for one owner it begins another only while it has fewer for that one
    than it could still begin: so one alone has half of them at most."""
    configs: int = 10
    """Push notification configurations that a task may have."""
    chunks: bool = False
    """Whether webhooks of A2A 1.0 get every chunk of an artifact; else each artifact once it is whole."""
    private_hosts: Collection[str] = ()
    """Names and addresses of webhooks that may be private, and reached by `http`: `hooks.internal`, `10.0.0.7`. All
    others have to be public, by every address that their name has when it is called, and reached by `https`."""
    keys: Sequence[str] = field(default=(), repr=False)
    """Keys that URLs, tokens and credentials are stored encrypted with, as `cryptography.fernet.Fernet.generate_key`
    makes them: the first encrypts, all decrypt. Without any, they are stored as they are."""
    resolve: Callable[[str, int], Awaitable[Sequence[str]]] | None = None
    """Looks up the addresses of a host, given its name and port; None asks the system."""

    def __post_init__(self) -> None:
        _positive(self)
