"""The composition root: builds the parts, joins them, and hands out one ASGI app."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from typing import Any, Literal

from fasta2a import FastA2A
from fasta2a.broker import Broker, InMemoryBroker
from fasta2a.schema import AgentExtension, AgentProvider, SecurityRequirement, SecurityScheme, Skill, Task
from fasta2a.storage import InMemoryStorage, Storage
from fasta2a.worker import Worker as FastA2AWorker
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.conversation_store import ConversationStore
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import BaseRoute, Route
from starlette.types import ExceptionHandler, Lifespan, Receive, Scope, Send
from typing_extensions import Unpack

from .auth.base import Authenticate, Authenticator
from .auth.guard import Guard, guard
from .backends.postgres_settings import Postgres
from .backends.sqlite import SqliteBackend
from .backends.sqlite_file import SqliteFile, SqliteFileBackend
from .bindings import http_json
from .bindings.base import new_correlation_id
from .bindings.browser import AllowedHosts, cors_middleware, misdirected
from .bindings.discovery import CARD_PATH, Discovery
from .bindings.exchange import Serving
from .bindings.extensions import Extensions
from .bindings.health import LIVE_PATH, READY_PATH, Live, Ready
from .bindings.jsonrpc import JsonRpc
from .bindings.slow import SlowSenders
from .bindings.sse import OpenStreams
from .card import CardFacts, CardSettings, CardTemplate
from .conversion.answers import PlainText
from .conversion.inbound import HTTPS_ONLY
from .errors import TaskNotFoundError
from .hosting import Hosting, server_processes
from .own_parts import Conversion, Held, OwnParts, own_parts
from .ports import Backend
from .protocol import stored
from .push.sending import webhooks
from .quotas import Metering
from .runner import RunOptions
from .service import Service
from .settings import Limits, Progress, Push, Quotas, Retention, Workers
from .types import ANONYMOUS, CallContext, Caller, TaskQuery, TaskState
from .worker import Worker, now_ms

__all__ = ('A2AApp', 'open_store', 'to_a2a')

logger = logging.getLogger('pydantic_ai_a2a')


class A2AApp(FastA2A):
    """What `to_a2a` returns: a FastA2A (Starlette) app, and a Python API for the tasks that it serves.

    The methods act for whoever owns a task, so call them only from code that may see everything.
    """

    hosting: Hosting
    """Starts with the first call, or with the lifespan."""
    guard: Guard
    """Decides who may call."""
    metering: Metering | None = None
    """Counts what callers take; None: nothing is."""
    allowed_hosts: AllowedHosts | None = None
    """The hosts that are answered for; None: all."""

    def __init__(self, backend: Backend, service: Service, **options: Any) -> None:
        # FastA2A wants a storage and a broker; the routes that would use them are replaced.
        super().__init__(storage=InMemoryStorage(), broker=InMemoryBroker(), **options)
        self._backend = backend
        self._service = service

    @property
    def backend(self) -> Backend:
        """Where its tasks and conversations live."""
        return self._backend

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve; what the lifespan has not started starts with the first call, and the card needs none of it."""
        if self.allowed_hosts is None or self.allowed_hosts.answer(scope):
            await Starlette.__call__(self, scope, receive, send)
        else:
            await misdirected(scope, receive, send)

    async def get_task(self, task_id: str) -> Task:
        """A task as it is now, with its whole history.

        Raises:
            TaskNotFoundError: There is none with this id.
        """
        task = await self._backend.reader.load(task_id, None)
        if task is None:
            raise TaskNotFoundError
        return stored.load_task(task)

    async def list_tasks(
        self,
        *,
        caller: Caller | None = None,
        context_id: str | None = None,
        state: TaskState | None = None,
        limit: int = 100,
    ) -> list[Task]:
        """The newest tasks by status, with history and artifacts.

        Args:
            caller: Only this caller's tasks.
            context_id: Only tasks of this context.
            state: Only tasks in this state.
            limit: How many at most.

        Raises:
            ValueError: `limit` is less than 1.
        """
        if limit < 1:
            raise ValueError(f'limit must be at least 1, not {limit!r}.')
        owner = None if caller is None else caller.owner
        query = TaskQuery(owner=owner, context_id=context_id, state=state, page_size=limit, include_artifacts=True)
        page = await self._backend.reader.list(query)
        return [stored.load_task(task) for task in page.tasks]

    async def cancel_task(self, task_id: str) -> Task:
        """Cancel a task and wait until its run has stopped, at most `Limits.cancel_grace` seconds.

        Raises:
            TaskNotFoundError: There is none with this id.
            TaskNotCancelableError: It has ended.
        """
        return stored.load_task(await self._service.cancel(task_id, None))

    async def resume_task(self, task_id: str, text: str = 'Access was granted.') -> Task:
        """Let a task go on that is `auth-required`, once its credentials have come by another way (§7.6.1).

        The tool that asked for them is called again; what it does then is up to it.

        Args:
            task_id: The task.
            text: What the agent reads as the user's next message.

        Raises:
            TaskNotFoundError: There is none with this id.
            UnsupportedOperationError: It does not wait for credentials.
        """
        call = CallContext(ANONYMOUS, new_correlation_id())
        return stored.load_task(await self._service.resume(call, task_id, text))

    async def erase_task(self, task_id: str) -> bool:
        """Delete a task with its messages, artifacts and events; whether it was there.

        Raises:
            UnsupportedOperationError: It is queued or running; cancel it first.
        """
        return await self._backend.housekeeping.erase_task(task_id, None, at=now_ms())

    async def erase_context(self, context_id: str, *, caller: Caller = ANONYMOUS) -> bool:
        """Delete a caller's conversation and all its tasks; whether there was anything.

        Raises:
            UnsupportedOperationError: One of its tasks is queued or running; cancel it first.
        """
        return await self._backend.housekeeping.erase_context(context_id, caller.owner, at=now_ms())

    def conversations(self, *, caller: Caller = ANONYMOUS) -> ConversationStore:
        """A caller's conversations, as Pydantic AI's store: load, fork or delete them by their context id."""
        return self._backend.conversations(caller.owner)


def to_a2a(
    agent: AbstractAgent[Any, Any],
    *,
    # Agent card
    name: str | None = None,
    url: str | None = None,
    version: str = '1.0.0',
    description: str | None = None,
    provider: AgentProvider | None = None,
    skills: list[Skill] | None = None,
    extensions: list[AgentExtension] | None = None,
    security_schemes: dict[str, SecurityScheme] | None = None,
    security_requirements: list[SecurityRequirement] | None = None,
    docs_url: str | None = None,
    default_input_modes: Sequence[str] | None = None,
    default_output_modes: Sequence[str] | None = None,
    # Server
    backend: Literal['memory'] | str | Postgres | Backend = 'memory',
    namespace: str | None = None,
    storage: Storage[Any] | None = None,
    broker: Broker | None = None,
    worker: FastA2AWorker[Any] | None = None,
    auth: Authenticator | Sequence[Authenticator] | None = None,
    authenticate: Authenticate | None = None,
    scopes: Mapping[str, str | Collection[str]] | None = None,
    anonymous_list: bool | None = None,
    allowed_file_url_schemes: frozenset[str] = HTTPS_ONLY,
    allowed_hosts: Sequence[str] | None = None,
    cors: Sequence[str] = (),
    limits: Limits = Limits(),
    quotas: Quotas | None = None,
    retention: Retention = Retention(),
    workers: Workers = Workers(),
    progress: Progress = Progress(),
    push: Push | None = None,
    input_type: Any = None,
    plain_text_answers: PlainText = 'questions',
    hide_arguments: Collection[str] = (),
    # Starlette
    debug: bool = False,
    routes: Sequence[BaseRoute] | None = None,
    middleware: Sequence[Middleware] | None = None,
    exception_handlers: dict[Any, ExceptionHandler] | None = None,
    lifespan: Lifespan[Any] | None = None,
    **run: Unpack[RunOptions],
) -> A2AApp:
    """Serve an agent over A2A 1.0: an ASGI app for `run`, `serve`, `uvicorn module:app` or `mount`.

    ```python
    from pydantic_ai import Agent

    from pydantic_ai_a2a import to_a2a

    agent = Agent('test', instructions='Be fun!')
    app = to_a2a(agent)
    ```

    Nothing is started, and no API key needed, until the first request.

    Args:
        agent: Any Pydantic AI agent.
        name: Name on the agent card; the agent's own, else `agent`.
        url: The agent's public URL, for the card; None takes the URL that a request came to.
        version: The agent's own version, for the card.
        description: What the agent is for; the agent's own description, else a neutral sentence. Instructions and
            system prompts never go into the card.
        provider: Who offers the agent.
        skills: What it can do; without any, the card has one skill: the agent as a whole.
        extensions: Protocol extensions that the card declares; a request must declare the required ones.
        security_schemes: How callers authenticate, for the card, where `authenticate` enforces it; what `auth` enforces
            is on the card by itself.
        security_requirements: Which of the schemes are needed, for the card; not with `auth` either.
        docs_url: Path of FastA2A's page that shows the card; None for none. Its form sends FastA2A's own methods, which
            are not served.
        default_input_modes: Media types on the card; what the model's profile takes.
        default_output_modes: Media types on the card; from the output type.
        backend: Where tasks and conversations live: in the memory of this process (`'memory'`), in a SQLite file
            (`'sqlite:///relative.db'`, `'sqlite:////absolute.db'`; with `?synchronous=normal`, a power failure may undo
            the last moments), in a PostgreSQL database (`'postgresql://user@host/database'`, or a `Postgres` with its
            options), or a `Backend` of your own.
        namespace: Stable name under which they are stored; the agent's name, else `agent`. Not for a `Backend` of
            your own, which has one already.
        storage: A FastA2A storage of your own for tasks and contexts. What it has no method for is refused with -32004:
            lists of tasks, erasing, conversations from Python, and subscribing to a task of another process or
            continuing it.
        broker: A FastA2A broker of your own, which carries the operations of tasks.
        worker: A FastA2A worker of your own, with its own storage and broker: an `AgentWorker`, whose
            `build_message_history` and `build_artifacts` take effect, or one that runs tasks by itself.
        auth: How callers authenticate: one way, or several of which each will do. Whoever does not is refused with
            HTTP 401 before the request's body is read. Without it all callers are one anonymous owner, who see each
            other's tasks.
        authenticate: A function that says who sends a request, instead of `auth`; None from it answers HTTP 401.
        scopes: Scopes that callers need, by operation of A2A 1.0 (`*`: all that are not named); else HTTP 403.
            `SendStreamingMessage` needs those of `SendMessage`, and `ListTasks` and `SubscribeToTask` those of
            `GetTask`, unless they are named themselves.
        anonymous_list: Whether callers that nobody vouches for may list tasks, which shows each of them those of all;
            else HTTP 403. None: those on this machine may.
        allowed_file_url_schemes: Schemes of the URLs that clients may send as files, as Pydantic AI's UI adapters have
            it. `http` shows files to whoever listens on the way; `s3` or `gs` let clients read what the model's
            provider may read for you.
        allowed_hosts: Names of the hosts that the app answers for, such as `agent.example.com` or `*.example.com`,
            beside `localhost` and IP addresses; others get HTTP 421. None answers for every host, but `run` and `serve`
            do not on an address that is reached from this machine only.
        cors: Origins whose web pages may call the agent, such as `https://app.example.com`; `*` is every page.
        limits: What one request, message, stream or queue may take.
        quotas: What each caller may have: requests, streams, tasks, and what runs use of the model. Without it, nobody
            is counted.
        retention: How long what is stored is kept.
        workers: How many tasks run at once, and how they stop.
        progress: What clients that watch a task see of its run, beside the answer: nothing, unless told otherwise.
        push: Lets clients register webhooks, which are told of their tasks; None refuses them. The server then calls
            URLs that clients choose: see "Push notifications".
        input_type: Type of the data that a message has to hold which begins a task, such as a Pydantic model: it is
            validated before anything is stored, and its JSON Schema is on the card, as `inputSchema` of the skills.
            None takes any message.
        plain_text_answers: What a client may answer in plain words instead of data, if it is all that a task waits
            with: `'questions'`, or approvals as well (`'all'`: yes, or no, or no: and the reason), or nothing
            (`'none'`).
        hide_arguments: Names of tools whose arguments clients are not shown when a call of them waits for approval or
            for its result.
        debug: See Starlette, like all that follow.
        routes: Further routes. With one at a path of the HTTP+JSON binding, such as `/tasks`, that is not served.
        middleware: See Starlette; prefer pure ASGI middleware, a `BaseHTTPMiddleware` slows every request.
        exception_handlers: See Starlette.
        lifespan: Entered within ours.
        run: What every run of the agent is given, by the names of `Agent.run`; see `RunOptions`.

    Raises:
        TypeError: A run option is none, or belongs to a request; `namespace`, `storage`, `broker` or `worker` is given
            with a `Backend`, or run options or budgets are given with a `worker`; or `auth` is given with
            `authenticate`, `security_schemes` or `security_requirements`, or `scopes` without anything that
            authenticates.
        ValueError: The agent card would not be valid; `auth` is empty, or `scopes` has none; the worker has another
            agent, storage or broker; the backend is none that there is, or in use by another app of this process; or it
            is memory, and a server of several processes imports the app, or has no push notifications.
    """
    if namespace is not None and isinstance(backend, Backend):
        raise TypeError('namespace= is for the backends that to_a2a() makes; a Backend has its own.')
    own = own_parts(
        agent,
        storage=storage,
        broker=broker,
        worker=worker,
        backend_given=isinstance(backend, Backend),
        options=run,
        url_schemes=allowed_file_url_schemes,
    )
    hosts = None if allowed_hosts is None else AllowedHosts(allowed_hosts)
    store = _backend(backend, namespace or name or agent.name or 'agent', limits, own)
    metering = None if quotas is None else _metering(quotas, store, own)
    parts = _Parts(
        agent,
        store,
        limits=limits,
        metering=metering,
        retention=retention,
        workers=workers,
        push=push,
        conversion=Conversion(
            agent,
            run,
            worker,
            output_modes=default_output_modes,
            progress=progress,
            url_schemes=allowed_file_url_schemes,
            hidden=hide_arguments,
            input_type=input_type,
        ),
        plain_text_answers=plain_text_answers,
    )
    guards = guard(auth, authenticate, scopes, security_schemes, security_requirements)
    guards.anonymous_list = anonymous_list
    taken = http_json.first_taken(routes or ())
    if taken is not None:
        logger.warning('The HTTP+JSON binding is not served: routes= has its path %s.', taken)
    settings = CardSettings(
        name=name,
        description=description,
        version=version,
        provider=provider,
        skills=skills or (),
        extensions=extensions or (),
        security_schemes=guards.schemes,
        security_requirements=guards.requirements,
        http_json=taken is None,
        push_notifications=push is not None,
    )
    card = CardTemplate(parts.facts(default_input_modes, default_output_modes), settings)
    serving = Serving(
        service=parts.service,
        body_limit=limits.body,
        senders=SlowSenders(limits.body_time),
        value_limit=limits.values,
        guard=guards,
        metering=metering,
        extensions=Extensions(extensions or ()),
        streams=parts.streams,
        runs_here=parts.hosting.running,
        start=parts.hosting.ensure,
    )
    app = A2AApp(
        store,
        parts.service,
        name=name or agent.name,
        url=url or '',
        version=version,
        description=description,
        provider=provider,
        skills=skills,
        extensions=extensions,
        security_schemes=guards.schemes or None,
        security_requirements=guards.requirements or None,
        docs_url=docs_url,
        debug=debug,
        routes=[
            Route('/', JsonRpc(serving), methods=['POST']),
            *([] if taken else http_json.routes(serving)),
            Route(CARD_PATH, Discovery(card, url), methods=['GET', 'HEAD']),
            Route(LIVE_PATH, Live(), methods=['GET', 'HEAD']),
            Route(READY_PATH, Ready(parts.hosting.components, parts.read), methods=['GET', 'HEAD']),
            *(routes or ()),
            *([] if taken else http_json.last_routes()),
        ],
        middleware=[*cors_middleware(cors), *(middleware or ())],
        exception_handlers=exception_handlers,
        lifespan=_lifespan(parts.hosting, lifespan),
    )
    app.hosting = parts.hosting
    app.guard = guards
    app.metering = metering
    app.allowed_hosts = hosts
    return app


class _Parts:
    """What serves one agent, joined."""

    def __init__(
        self,
        agent: AbstractAgent[Any, Any],
        backend: Backend,
        *,
        limits: Limits,
        metering: Metering | None,
        retention: Retention,
        workers: Workers,
        conversion: Conversion,
        plain_text_answers: PlainText,
        push: Push | None = None,
    ) -> None:
        self._agent = agent
        self._conversion = conversion
        self.streams = OpenStreams(limits.keep_alive)

        def make_worker() -> Worker:
            job = conversion.job(backend, metering)
            return Worker(backend, job, settings=workers, retention=retention, metering=metering)

        registration, sending = (None, None) if push is None else webhooks(backend, push, now_ms)
        kept = [each for each in (backend, sending) if isinstance(each, AbstractAsyncContextManager)]
        store = Held(*kept) if kept else None
        self.hosting = Hosting(
            make_worker,
            agent if store is None else Held(agent, *kept),
            backend=backend,
            store=store or nullcontext(),
            streams=self.streams,
            drain_grace=workers.drain_grace,
            drain_delay=workers.drain_delay,
            durable=backend.durable,
        )
        self.read = partial(backend.reader.load, 'health', None, history_length=0, artifacts=False)
        """The smallest read that there is."""
        self.service = Service(
            backend,
            limits=limits,
            retention=retention,
            check_content=conversion.check_content,
            check_output=conversion.check_output,
            accepting=self.hosting.accepting,
            now=now_ms,
            metering=metering,
            push=registration,
            plain_text_answers=plain_text_answers,
        )

    def facts(self, input_modes: Sequence[str] | None, output_modes: Sequence[str] | None) -> CardFacts:
        description = self._agent.description
        typed = self._conversion.input
        return CardFacts(
            name=self._agent.name,
            description=description if isinstance(description, str) else None,
            input_modes=input_modes or (self._conversion.takes.input_modes if typed is None else ['application/json']),
            input_schema=None if typed is None else typed.schema,
            output_modes=output_modes or self._conversion.outputs.modes,
        )


def open_store(store: str | Postgres, namespace: str, limits: Limits = Limits()) -> Backend:
    """The backend over the store that is meant or that a URL names, which outlives the process.

    Raises:
        ImportError: The driver of PostgreSQL is not installed.
        ValueError: There is no such store, or a running app of this process has it.
    """
    if isinstance(store, Postgres):
        return _postgres(store, namespace, limits)
    if str(store).startswith('sqlite:'):
        return SqliteFileBackend(SqliteFile.of(store), namespace, reader_lag=limits.reader_lag)
    if str(store).startswith('postgres'):
        return _postgres(Postgres(store), namespace, limits)
    raise ValueError(
        f"backend must be 'memory', 'sqlite:///agent.db', 'postgresql://host/database' or a Backend, not {store!r}."
    )


def _postgres(settings: Postgres, namespace: str, limits: Limits) -> Backend:
    try:
        from .backends.postgres import PostgresBackend  # noqa: PLC0415 - its driver is not always installed
    except ModuleNotFoundError as error:
        raise ImportError('PostgreSQL needs asyncpg: pip install "pydantic-ai-a2a[postgres]"') from error
    return PostgresBackend(settings, namespace, reader_lag=limits.reader_lag)


def _backend(backend: str | Postgres | Backend, namespace: str, limits: Limits, own: OwnParts | None) -> Backend:
    if isinstance(backend, Backend):
        return backend
    if backend != 'memory':
        return open_store(backend, namespace, limits)
    if own is None and (processes := server_processes()) > 1:
        raise ValueError(
            f'{processes} server processes do not see the tasks in the memory of each other:'
            " use backend='sqlite:///agent.db', or one process."
        )
    memory = SqliteBackend(namespace, reader_lag=limits.reader_lag)
    return memory if own is None else own.backend(memory)


def _metering(quotas: Quotas, store: Backend, own: OwnParts | None) -> Metering:
    if quotas.budgets and own is not None and own.foreign is not None:
        raise TypeError('Quotas.budgets need to know what runs use, which a worker= of your own does not tell.')
    return Metering(quotas, store.quotas, now_ms)


def _lifespan(hosting: Hosting, users: Lifespan[Any] | None) -> Callable[[Any], AbstractAsyncContextManager[Any]]:
    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncGenerator[Any]:
        await hosting.start()
        try:
            if users is None:
                yield
            else:
                async with users(app) as state:
                    yield state
        finally:
            await hosting.stop()

    return lifespan
