"""The settings of an app, in frozen dataclasses by topic. Each option is documented at its definition.

Users construct the groups. `to_a2a` joins the groups into one `Settings` for the parts of the app.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from starlette.requests import Request

from .arguments import Span, checked
from .types.a2a_objects import AgentCard, Message, Worker
from .types.callers import Caller
from .types.frozen_values import frozen
from .types.signing_keys import Key
from .types.waiting_approvals import WaitingTask

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


@frozen
class Settings:
    """All groups of settings of one app."""

    access: Access
    approvals: Approvals
    limits: Limits
    messages: Messages
    push: Push | None
    results: Results
    retention: Retention
    workers: Workers


# --- access -----------------------------------------------------------------------------------------------------------
# Hosts, web pages, protocol versions, scopes, owners, tenants, cards.

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


@checked
@dataclass(frozen=True, kw_only=True)
class TLS:
    """TLS of the gRPC server, from PEM files, which are read when the server starts."""

    certificate: str | Path
    """File with the certificate of the server, followed by intermediate certificates."""
    key: str | Path
    """File with the private key of the certificate."""
    client_ca: str | Path | None = None
    """File with the certificates that sign the certificates of clients. Clients without such a certificate are refused
    (mTLS). Default None: clients need no certificate."""


# --- credentials ------------------------------------------------------------------------------------------------------
# Settings for credentials that runs use on behalf of callers.


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """A credential that a run may use on behalf of the caller. An `Exchange` returns the credential."""

    value: str = field(repr=False)
    """The credential, such as an access token: at most 16,000 characters."""
    expires_in: float
    """Seconds until the credential expires, as in the answer of a token endpoint (`expires_in`)."""


Exchange: TypeAlias = Callable[[Request, Caller], Awaitable[Credential | None] | Credential | None]
"""A function, async or not, of the request, without its body, and its caller. Returns a `Credential`, or None."""


@checked
@dataclass(frozen=True, kw_only=True)
class Credentials:
    """Credentials that runs use on behalf of callers: exchanged for each message, and stored encrypted."""

    exchange: Exchange
    """Function, async or not, of the Starlette request, without its body, and the `Caller`. Returns a `Credential` for
    the run, or None for no credential. A function that waits for a server must be async. The server calls the function
    for each message that an authenticated caller sends, before the message is stored. If the function fails, the caller
    gets HTTP 503, and nothing is stored."""
    keys: Sequence[str] = field(repr=False)
    """Fernet keys that encrypt stored credentials (see `cryptography.fernet.Fernet.generate_key`). The first key
    encrypts, all keys decrypt."""
    timeout = 10.0  # seconds for one exchange

    def __post_init__(self) -> None:
        positive(self)
        if not self.keys:
            raise ValueError('Credentials.keys needs a key of cryptography.fernet.Fernet.generate_key().')


# --- limits -----------------------------------------------------------------------------------------------------------
# Sizes, times and counts of requests, streams, queues and callers.

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


class _FixedLimits:
    """Limits that fit every server. Tests have others, in subclasses of `Limits`."""

    body_time = 30.0
    """Seconds within which a request body has to arrive. A slower request gets HTTP 408 after at most twice the time,
    and its connection is closed."""
    answer_time = 60.0
    """Seconds within which a client has to read a response of more than 64 KB; in a stream, each piece of more than 64
    KB. A slower response is cut off after at most twice the time, and its connection is closed."""
    values = 250_000
    """JSON values in a request body. A body with more gets HTTP 413: values take much more memory than their text."""
    parts = 1_000
    """Parts of a message."""
    metadata = 100_000
    """Largest metadata of a request, a message or a part, in bytes of JSON. Also limits the list of a message's
    extensions and the list of output modes."""
    references = 10
    """Tasks that a message may refer to."""
    referenced = 1_000_000
    """Bytes of JSON of the referenced tasks' artifacts that reach the model, together. Further artifacts are left
    out."""
    client_tools = 32
    """Tools that a message may declare, with `Messages.client_tools`."""
    download_time = 60.0
    """Seconds for the download of all files by URL of one request to the model. A task whose downloads take longer is
    `failed`."""
    page = 10_000_000
    """Bytes of messages and artifacts in one response of ListTasks. A larger page ends earlier, after at least one
    task, and the client asks for the next page."""
    reader_lag = 1_000_000
    """Bytes that the reader of an event stream may lag behind before the stream is closed. The reader can resume from
    its last event id."""
    keep_alive = 3.0
    """Seconds between comments on an idle event stream. The official client gives up after 5 seconds of silence."""
    cancel_grace = 5.0
    """Seconds that CancelTask waits for the run to stop. Then the task is `canceled`, and a later result is dropped."""


@checked
@dataclass(frozen=True, kw_only=True)
class Limits(_FixedLimits):
    """Limits of requests, messages, streams and queues, and quotas of callers."""

    body: int = 10_000_000
    """Largest request body, in bytes. A larger body gets HTTP 413 before the body is parsed. Default 10 MB."""
    unsent: int = 64_000_000
    """Bytes of unread responses and stream pieces of more than 64 KB each that the process holds for all clients. Over
    the limit, the slowest readers are cut off: those that have read nothing for a second, or would not finish within a
    minute. If the space is still too small, a new response is refused with HTTP 503, and a stream is closed; the
    client can resume the stream from its last event id. Default 64 MB."""
    part: int = 1_000_000
    """Longest text of a part, in characters, and largest data of a part, in bytes of JSON. Default 1,000,000. A message
    over this or a following message limit is refused with error -32602 before anything is stored."""
    files: int = 100
    """Files in a message, inline or by URL. Default 100."""
    depth: int = 32
    """Deepest nesting of objects and lists in data and metadata. Default 32; the official client reads no deeper
    objects."""
    queue: int = 10_000
    """Queued tasks. Over the limit, a new task is refused with HTTP 503 before anything is stored. Default 10,000."""
    messages: int = 32
    """Unread messages of one task; over the limit, a new message is refused with HTTP 503. Also the number of times
    that a waiting task repeats its question after an unclear answer; then unclear answers are refused with error
    -32602. Default 32."""
    memory: int = 1_000_000_000
    """Bytes of the store of `backend='memory'`, including conversations and answers, as pages in use. While the store
    is larger, new messages are refused with HTTP 503. `Retention` removes finished tasks. Files and databases have no
    such limit besides `Retention` and their disk. Default 1 GB."""
    max_wait: Span[float | None] = Span(None)
    """Seconds that a blocking send waits before the server returns the task as it is. Default None: until the task ends
    or asks the client for input."""
    quotas: Quotas | None = None
    """Quotas of each caller: requests, streams, tasks and model usage. Default None: no quotas."""

    def __post_init__(self) -> None:
        positive(self)


# --- messages and approvals -------------------------------------------------------------------------------------------

HTTPS_ONLY = frozenset({'https'})
"""The default of `Messages.allowed_file_url_schemes`."""

Approvers: TypeAlias = str | Callable[[Caller, WaitingTask], bool | Awaitable[bool]]
"""The callers that may decide about waiting approvals: callers with a scope, or the callers for which a function of
the caller and the task returns True."""

PlainText: TypeAlias = Literal['none', 'deny', 'all'] | Collection[str]
"""The tool calls that a client may answer in plain words."""

Reply: TypeAlias = Literal['task', 'message']
"""The two kinds of answers to a message."""

Rule: TypeAlias = Reply | Callable[[Message], Reply | Awaitable[Reply]]
"""The kind of answer to messages without a task: one kind for all, or a function that returns the kind for a
message."""

WhileWorking: TypeAlias = Literal['queue', 'steer', 'reject']
"""The ways to treat a message to a queued or running task: see `Messages.while_working`."""


@checked
@dataclass(frozen=True, kw_only=True)
class Messages:
    """Content of messages, and their treatment."""

    input_type: Any = None
    """Type of the data in a message that begins a task, such as a Pydantic model. The data is validated before anything
    is stored. The model reads the validated data, and `a2a(ctx).input` returns the validated object. The card has the
    type's JSON Schema. Default None: any message is accepted."""
    allowed_file_url_schemes: frozenset[str] = HTTPS_ONLY
    """Schemes of file URLs in messages, like the option of Pydantic AI's UI adapters. Default `https` only. `http`
    exposes files to the network between; `s3` and `gs` let clients read all files that the model's provider can read on
    your behalf."""
    force_download: bool = True
    """True, the default: the server downloads files of `https` and `http` URLs, with Pydantic AI's download that
    refuses private addresses. False passes the URLs to providers that accept URLs; a provider inside your network then
    fetches any URL that a client sends."""
    while_working: WhileWorking = 'queue'
    """Treatment of a message to a queued or running task. `'queue'`, the default: the message is the prompt of the
    task's next run. `'steer'`: the message enters the run with the next request to the model. `'reject'`: the message
    is refused with error -32004."""
    reply: Rule = 'task'
    """Answer to a message that names no task: a task (`'task'`, the default), or a message (`'message'`), made by one
    run within the request that stores only the turn of its conversation. A function `(message)`, which may be async,
    chooses for each message."""
    client_tools: bool = False
    """True lets messages declare tools, which the agent may call in the task of the message and whose calls the client
    answers. The card declares the extension `client-tools-v1`. Default False: declared tools have no effect."""
    deps_headers: Collection[str] = ()
    """Names of HTTP headers that `deps_factory` can read. The headers are stored with the task; headers with
    credentials are not allowed. Default: none."""


@checked
@dataclass(frozen=True, kw_only=True)
class Approvals:
    """Answers of clients to waiting tool calls, and visibility of the calls' arguments."""

    plain_text_answers: PlainText = 'deny'
    """Tool calls that a client may answer in plain words instead of data. `'deny'`, the default: words answer a
    question or deny an approval. Names of tools: `yes` also approves calls of these tools. `'all'`: `yes` approves
    calls of every tool. `'none'`: words answer nothing. With `approvers`, `yes` approves only when a task waits for the
    first time."""
    change_arguments: bool | Collection[str] = True
    """Tools whose arguments an approval may change. True, the default: all tools except those in `hide_arguments`; no
    tool with `approvers`. Names of tools: these tools. False: no tool."""
    hide_arguments: Collection[str] = ()
    """Names of tools whose arguments are hidden from clients, in waiting calls and in `Results.progress`. Default:
    none."""

    approvers: Approvers | None = None
    """Callers that may approve or deny waiting calls. None, the default: the owner of the task. A scope: the callers
    with the scope. A function `(caller, task)`, which may be async: the callers for which the function returns True.
    Approvers have the tenant of the task. Needs `auth=`."""

    def __post_init__(self) -> None:
        if self.approvers == '':
            raise ValueError('Approvals.approvers is an empty scope: name a scope, or leave approvers= out.')

    @property
    def named_tools(self) -> dict[str, Collection[str]]:
        """The tools that the settings name, by setting."""
        return {
            'hide_arguments': self.hide_arguments,
            'plain_text_answers': () if isinstance(self.plain_text_answers, str) else self.plain_text_answers,
            'change_arguments': () if isinstance(self.change_arguments, bool) else self.change_arguments,
        }

    def words_approve(self, tool: str) -> bool:
        """Return True if plain words may approve a call of the tool."""
        answers = self.plain_text_answers
        return answers == 'all' or (not isinstance(answers, str) and tool in answers)

    def may_change(self, tool: str) -> bool:
        """Return True if an approval may change the arguments of a call of the tool."""
        if isinstance(self.change_arguments, bool):
            return self.change_arguments and self.approvers is None and tool not in self.hide_arguments
        return tool in self.change_arguments


# --- results and push notifications -----------------------------------------------------------------------------------
# Results, progress and webhooks.

TextStream: TypeAlias = Literal['on-request', 'mark', 'replace', 'whole', 'off']
"""The forms in which the text of an answer is streamed: see `Results.stream`."""


@checked
@dataclass(frozen=True, kw_only=True)
class Progress:
    """Progress of a run that watching clients see besides the answer, as status updates."""

    notes: bool = False
    """True sends the text that the model writes beside a tool call to all watching clients and webhooks. Default False:
    only clients that ask for live text get it. The history of the task has the text in any case."""
    thinking: bool = False
    """True sends the model's thoughts, each as a whole, without signatures. Default False."""
    tools: bool = False
    """True sends tool calls, and the end of each call without its result. Arguments of tools in `hide_arguments` are
    left out. Default False."""
    partial_data: bool | Literal['with-functions'] = False
    """True sends the structured output while the model writes the output: data that validates as partial output, at
    most once in `Results.interval`. Each part replaces the part before, and the answer replaces the last. `to_a2a`
    then refuses an agent with output functions or output validators. `'with-functions'` allows them: they also run on
    each partial output, with `ctx.partial_output` True. Default False."""


@checked
@dataclass(frozen=True, kw_only=True)
class Results:
    """Delivery of results to clients. The stored task is the same for all values of `stream`."""

    stream: TextStream = 'on-request'
    """Form of an answer's text for clients that watch a task.

    `'on-request'`, the default: the whole text once it is complete; clients that activate the extension `live-text-v1`
    get pieces while the model writes, and then an empty last piece. `'mark'`: all clients get these pieces.
    `'replace'`: all clients get pieces, and then the whole text as a replacement of the pieces. `'whole'`: no client
    gets pieces. `'off'`: the agent does not stream, and its card says so.
    """
    interval: Span[float] = Span(0.1)
    """Seconds during which text is gathered into one piece. The first piece is sent at once. 0 sends each piece of the
    model unchanged. Default 0.1. Also the minimum time between two partial outputs."""
    data_as_text: bool = False
    """True adds a text part with the same JSON after each data part, for clients that read only text. Default False."""

    progress: Progress = Progress()
    """Thoughts and tool calls that watching clients see. Default: none."""
    run_metadata: bool = True
    """True, the default: clients that request the run metadata extension get the usage of runs, and the card declares
    the extension."""

    client_schemas: bool = False
    """True lets a message ask for an answer that fits a JSON Schema of the client, in place of the agent's output type.
    Output functions of the agent do not run for such a message, and output validators exclude such a message. Default
    False: such a message is refused with error -32004."""

    def __post_init__(self) -> None:
        positive(self, or_zero=('interval',))


class _FixedPush:
    """Times and numbers that fit every server. Tests have others, in subclasses of `Push`."""

    timeout = 15.0
    """Seconds of one try, from the look-up of the host's name to the answer."""
    backoff = 1.0
    """Seconds before the second try. Each later pause is four times as long, at most an hour, plus or minus up to a
    half at random."""
    at_once = 32
    """Deliveries that this process tries at once. A further delivery for an owner begins only while the owner has fewer
    deliveries than there are free slots, so one owner alone gets at most half of the slots."""
    configs = 10
    """Push notification configurations of one task."""
    resolve: Callable[[str, int], Awaitable[Sequence[str]]] | None = None
    """Async function `(host, port)` that returns the addresses of a host. None: the system's resolver."""


@checked
@dataclass(frozen=True, kw_only=True)
class Push(_FixedPush):
    """Webhooks: push notifications to URLs that clients register (§4.3.3)."""

    tries: int = 8
    """Tries of one event. Then the delivery is dead; the command `dead-deliveries` lists and retries dead deliveries.
    Default 8."""
    chunks: bool = False
    """True sends every chunk of an artifact to webhooks of A2A 1.0. Default False: each artifact once it is whole."""
    private_hosts: Collection[str] = ()
    """Names and addresses of webhook hosts that may be private and use `http`, such as `hooks.internal` or `10.0.0.7`.
    All other webhooks must use `https` and have only public addresses at the time of the call. Default: none."""
    keys: Sequence[str] = field(default=(), repr=False)
    """Fernet keys that encrypt stored URLs, tokens and credentials (see `cryptography.fernet.Fernet.generate_key`). The
    first key encrypts, all keys decrypt. Default: no encryption."""
    signing: Sequence[Key] = field(default=(), repr=False)
    """Keys of signatures of push notifications, as for `Access.signing`; the first key signs. Needs `url=` and the
    extra `jwt`. Default: push notifications have no signatures."""

    def __post_init__(self) -> None:
        positive(self)


# --- workers and retention --------------------------------------------------------------------------------------------


@checked
@dataclass(frozen=True, kw_only=True)
class Retention:
    """Name and lifetime of stored data.

    Tasks that have not ended are never removed for age or number.
    """

    namespace: str | None = None
    """Stable name under which tasks and conversations are stored. Default None: the name of `to_a2a`, else the agent's.
    A file or a database needs one of the three. Not for a `Backend` of your own, which already has a namespace."""
    tasks: Span[timedelta] = Span(timedelta(days=7))
    """Time until a finished task is removed. Default 7 days."""
    max_tasks: int | None = None
    """Number of finished tasks, and of conversations, in the store; the oldest tasks and the longest unused
    conversations are removed first. Default None: 1,000,000 in PostgreSQL, 10,000 in a SQLite file or in memory."""
    events: Span[timedelta] = Span(timedelta(minutes=1))
    """Time after the end of a task in which clients can resume its event log. After that, clients get the assembled
    task. Default 1 minute."""
    contexts: Span[timedelta] = Span(timedelta(days=30))
    """Time until an unused conversation is removed, unless one of its tasks has not ended. Default 30 days."""
    waiting: Span[timedelta] = Span(timedelta(days=7))
    """Time until a task that waits for its client is `failed`. Also the longest time for which a finished task with
    pending webhook deliveries outlives `tasks` and `max_tasks`. Default 7 days."""
    idempotency_window: Span[timedelta] = Span(timedelta(minutes=10))
    """Time in which an anonymous client's repeated first message of a task is answered with the same task. Repeated
    messages of authenticated callers, and messages with a `taskId`, are recognised as long as the task is stored. 0
    turns recognition off for all callers. Default 10 minutes."""

    def __post_init__(self) -> None:
        positive(self, or_zero=('idempotency_window',))


class _FixedWorkers:
    """Times that fit every server. Tests have others, in subclasses of `Workers`."""

    backoff = 2.0
    """Seconds before the first further try of a run. Each later pause is twice as long, up to 64 seconds. A pause is up
    to a half longer at random."""


@checked
@dataclass(frozen=True, kw_only=True)
class Workers(_FixedWorkers):
    """Execution of tasks in this process."""

    running: int = 256
    """Tasks that run at once in this process. Synchronous tools share the 40 threads of anyio. Default 256."""
    drain_grace: Span[float] = Span(20.0)
    """Seconds that running tasks get to finish when the server shuts down. Default 20."""
    drain_delay: Span[float] = Span(0.0)
    """Seconds that a server continues to serve after SIGTERM, with HTTP 503 on `/health/ready`, before the shutdown:
    time for a load balancer to react. Default 0."""
    lease: Span[float] = Span(30.0)
    """Seconds until another process may take over a task whose worker has stopped renewing it. Default 30."""
    attempts: int = 3
    """Starts of a task, including the first. A task starts again after the loss of its process. After the last start
    the task is `failed` and becomes a dead letter. Default 3."""
    retries: int = 5
    """Further tries of a run after an error of the model that `retry_on` accepts, such as HTTP 503. A try continues
    after the last stored step, and each stored step allows as many tries again. In memory, a run is tried again only
    before its first tool call. The pauses before five tries take 62 to 93 seconds, or longer as the provider asks with
    `Retry-After`. 0 turns tries off. Default 5."""
    retry_on: Callable[[Exception], bool] | None = None
    """Function that returns True for an error of a model request after which the run is tried again. Default None: HTTP
    408, 429 and 500 or more, timeouts, and dropped connections; not an exhausted quota."""

    worker: Worker[Any] | None = None
    """A FastA2A worker of your own, with its own storage and broker. Default None. An `AgentWorker` is called by this
    package's worker, with its own `build_message_history` and `build_artifacts`. Any other worker runs tasks itself, as
    does an `AgentWorker` with its own `run_task` or `cancel_task`."""

    def __post_init__(self) -> None:
        positive(self, or_zero=('retries',))


# --- checks of numbers and time spans ---------------------------------------------------------------------------------


def positive(settings: DataclassInstance, *, or_zero: Collection[str] = ()) -> None:
    """Refuse numbers and time spans below their minimum: 0 for fields in `or_zero` or with default 0, else above 0.

    Raises:
        ValueError: A number or time span is too small.
    """
    for setting in fields(settings):
        value = getattr(settings, setting.name)
        number = value.total_seconds() if isinstance(value, timedelta) else value
        if isinstance(number, bool) or not isinstance(number, int | float | Decimal):
            continue
        zero = setting.default == 0 or setting.name in or_zero
        if number < 0 or (number == 0 and not zero):
            wanted = '0 or more' if zero else 'positive'
            raise ValueError(f'{type(settings).__name__}.{setting.name} must be {wanted}, not {number!r}.')
