"""The composition root: `to_a2a` joins the parts and hands out one ASGI app."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Literal

from fasta2a.broker import Broker
from fasta2a.schema import AgentExtension, AgentProvider, SecurityRequirement, SecurityScheme, Skill
from fasta2a.storage import Storage
from fasta2a.worker import Worker as FastA2AWorker
from pydantic_ai.agent import AbstractAgent
from starlette.middleware import Middleware
from starlette.routing import BaseRoute
from starlette.types import ExceptionHandler, Lifespan
from typing_extensions import Unpack

from ..agent.dependencies import DepsFactory, dependencies
from ..agent.hooks import Hooks, OnCancel, OnComplete, OnFailure
from ..agent.options import RunOptions
from ..arguments import checked
from ..auth.base import Authenticate, Authenticator
from ..auth.guard import Guard, Owner, guard
from ..auth.tenants import TenantRule
from ..backends.postgres.settings import Postgres
from ..card import CardSettings, CardTemplate
from ..conversion.answer_rules import AnswerRules, PlainText
from ..conversion.asking import EXTENSION as PENDING_CALLS
from ..conversion.inbound import HTTPS_ONLY
from ..fasta2a.parts import OwnParts, own_parts
from ..http import http_json
from ..http.browser import AllowedHosts, cors_middleware
from ..http.card import Discovery
from ..http.extended_card import ExtendedCard, MakeCard
from ..http.index import Index
from ..ports import Backend
from ..protocol.run_metadata import EXTENSION
from ..protocol.versions import SUPPORTED, Version, Versions
from ..quotas import Metering
from ..runs.direct import Rule
from ..runs.host import Hosting
from ..settings import Limits, Progress, Push, Quotas, Results, Retention, WhileWorking, Workers
from .app import A2AApp
from .conversion import Conversion
from .parts import Assembly
from .routes import app_routes, fallback, tenants_of
from .stores import choose_backend

__all__ = ('to_a2a',)

logger = logging.getLogger('pydantic_ai_a2a')


@checked
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
    extended_card: MakeCard | Mapping[str, Any] | None = None,
    versions: Collection[Version] = SUPPORTED,
    run_metadata: bool = True,
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
    tenants: TenantRule | None = None,
    owner: Owner | None = None,
    anonymous_list: bool | None = None,
    allowed_file_url_schemes: frozenset[str] = HTTPS_ONLY,
    force_download: bool = True,
    allowed_hosts: Collection[str] | None = None,
    cors: Collection[str] = (),
    limits: Limits = Limits(),
    quotas: Quotas | None = None,
    retention: Retention = Retention(),
    workers: Workers = Workers(),
    progress: Progress = Progress(),
    results: Results = Results(),
    push: Push | None = None,
    input_type: Any = None,
    plain_text_answers: PlainText = 'deny',
    hide_arguments: Collection[str] = (),
    change_arguments: bool | Collection[str] = True,
    deps_factory: DepsFactory | None = None,
    deps_headers: Collection[str] = (),
    on_complete: OnComplete | None = None,
    on_cancel: OnCancel | None = None,
    on_failure: OnFailure | None = None,
    while_working: WhileWorking = 'queue',
    reply: Rule = 'task',
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
        extended_card: What callers that are known may read of the agent besides: a function of the caller and the
            public card that returns what stands in the place of the card's fields, or None for nobody's card; or what
            every one of them reads more, whose lists go on those of the public card.
        versions: Protocol versions that the card declares and the server serves: `('1.0', '0.3')` or one of them.
            FastA2A's dialect is served with 0.3, HTTP+JSON with 1.0. A request in another version is refused with
            -32009.
        run_metadata: Whether clients that ask for it are told what runs used: the card declares the extension.
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
            `build_message_history` and `build_artifacts` take effect, or a worker that runs tasks by itself, such as an
            `AgentWorker` with a `run_task` or `cancel_task` of its own.
        auth: How callers authenticate: one way, or several of which each will do. Whoever does not is refused with
            HTTP 401 before the request's body is read. Without it all callers are one anonymous owner, who see each
            other's tasks.
        authenticate: A function that says who sends a request, instead of `auth`; None from it answers HTTP 401.
        scopes: Scopes that callers need, by operation of A2A 1.0 (`*`: all that are not named); else HTTP 403.
            `SendStreamingMessage` needs those of `SendMessage`, and `ListTasks` and `SubscribeToTask` those of
            `GetTask`, unless they are named themselves.
        owner: A function that says whose a caller's tasks and conversations are, within the caller's tenant: all
            callers of the tenant for whom it returns the same name share them, and what quotas allow. None: each
            caller's are its own.
        tenants: Tenants that requests may name, in the path (`/acme/message:send`) or as `tenant` in their params, so
            that a caller acts in the one that it names: True for any, a collection of names, or a function of the
            caller and the name, which may be async. Credentials that say a tenant hold: such a caller may name no other
            one. None: what requests name means nothing.
        anonymous_list: Whether callers that nobody vouches for may list tasks, which shows each of them those of all;
            else HTTP 403. None: those on this machine may.
        allowed_file_url_schemes: Schemes of the URLs that clients may send as files, as Pydantic AI's UI adapters have
            it. `http` shows files to whoever listens on the way; `s3` or `gs` let clients read what the model's
            provider may read for you.
        force_download: Whether the server downloads the files whose `https` and `http` URLs clients send, by Pydantic
            AI's download that refuses private addresses. False leaves the URLs to a provider that takes them: one in
            your own network then fetches from there what clients name.
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
        results: How answers reach clients: in which pieces text is streamed, and whether data comes as text as well. A
            `worker` that runs tasks by itself decides that by itself.
        push: Lets clients register webhooks, which are told of their tasks; None refuses them. The server then calls
            URLs that clients choose: see "Push notifications".
        input_type: Type of the data that a message has to hold which begins a task, such as a Pydantic model: it is
            validated before anything is stored, and its JSON Schema is on the card, as `inputSchema` of the skills.
            None takes any message.
        plain_text_answers: Which calls that wait a client may answer in plain words instead of data: `'deny'`, the
            default, takes words as the answer to a question and as the denial of an approval; a collection of names of
            tools takes `yes` as an approval of calls of these tools, too; `'all'` of calls of every tool; `'none'`
            takes no words.
        hide_arguments: Names of tools whose arguments clients are not shown: neither when a call of them waits for
            approval or for its result, nor where `progress` shows calls.
        change_arguments: Whether an approval may change the arguments of the call: `True`, the default, allows it for
            all tools that `hide_arguments` does not name; a collection of names allows it for exactly these tools;
            `False` for none.
        while_working: What becomes of a message to a task that is queued or runs: it is the prompt of the task's next
            run (`'queue'`), enters the run with its next request to the model (`'steer'`), or is refused with -32004
            (`'reject'`).
        reply: What a message that goes to no task is answered with: `'task'`, or `'message'` (one run within the
            request, of which nothing but the turn of its conversation is stored), or a function of the message that
            says which and may be async.
        deps_factory: Makes the `deps` of each run, instead of one `deps` for all of them: a function, async or not, of
            the `CallContext`. If what it returns is a context manager, async or not, that is entered for the run, and
            left however the run ends. What it raises fails the task. It is called in the event loop.
        deps_headers: Names of the HTTP headers that it is told, which are stored with the task; not those that have
            credentials.
        on_complete: Called, as by Pydantic AI's UI adapters, with the `AgentRunResult` of each run that has completed:
            once its answer is stored, at most once, and what it raises is only logged. It may be async; else it is
            called in a thread.
        on_cancel: Called like that with the `RunCancelled` of each run that was cancelled with its task.
        on_failure: Called like that with a `RunFailure` for each run that has failed.
        debug: See Starlette, like all that follow.
        routes: Further routes. With one at a path of the HTTP+JSON binding, such as `/tasks`, that is not served.
        middleware: See Starlette; prefer pure ASGI middleware, a `BaseHTTPMiddleware` slows every request.
        exception_handlers: See Starlette.
        lifespan: Entered within ours.
        run: What every run of the agent is given, by the names of `Agent.run`; see `RunOptions`.

    Raises:
        TypeError: An argument has another type than it takes, or a keyword is unknown; the agent is a `DBOSAgent`, a
            `PrefectAgent`, or a `TemporalAgent` that is given a `timeout`; `namespace`, `storage`, `broker` or `worker`
            is given with a `Backend`, or run options, hooks or budgets are given with a `worker`; an output type is
            given to an agent with output validators; `reply` is given with `storage` or `worker`, or
            `while_working='steer'` with a `worker` that runs tasks by itself; `deps_factory` is given with `deps`, or
            `deps_headers` without it; or `auth` is given with `authenticate`, `security_schemes` or
            `security_requirements`, or `scopes`, `owner` or `extended_card` without anything that authenticates.
        ValueError: A string is none of those that an argument takes, or a number is NaN or infinite; `url` has no
            scheme; `hide_arguments` names a tool that the agent does not have; the agent card would not be valid;
            `auth` is empty, or `scopes` has none; `deps_headers` names credentials; the worker has another agent,
            storage or broker; the backend is none that there is, or in use by another app of this process; or it is
            memory, and a server of several processes imports the app, or has no push notifications.
    """
    _check(namespace, backend, docs_url)
    answer_rules = AnswerRules(plain_text=plain_text_answers, change_arguments=change_arguments, hidden=hide_arguments)
    hooks = Hooks(on_complete=on_complete, on_cancel=on_cancel, on_failure=on_failure)
    own = own_parts(
        agent,
        storage=storage,
        broker=broker,
        worker=worker,
        backend_given=isinstance(backend, Backend),
        options=run,
        hooks=hooks,
        deps_factory=deps_factory,
        force_download=force_download,
        url_schemes=allowed_file_url_schemes,
    )
    guards = guard(auth, authenticate, scopes, security_schemes, security_requirements, owner=owner)
    store = choose_backend(backend, namespace or name or agent.name or 'agent', limits, own)
    metering = None if quotas is None else _metering(quotas, store, own)
    parts = Assembly(
        agent,
        store,
        limits=limits,
        metering=metering,
        retention=retention,
        workers=workers,
        results=results,
        push=push,
        conversion=Conversion(
            agent,
            run,
            worker,
            output_modes=default_output_modes,
            progress=progress,
            results=results,
            url_schemes=allowed_file_url_schemes,
            force_download=force_download,
            download_time=limits.download_time,
            answer_rules=answer_rules,
            input_type=input_type,
            steers=while_working == 'steer',
            dependencies=dependencies(deps_factory, deps_headers, run, guards.schemes),
            hooks=hooks,
        ),
        answer_rules=answer_rules,
        while_working=while_working,
        reply=_reply(reply, own),
    )
    guards.anonymous_list = anonymous_list
    served = Versions(versions)
    settings = CardSettings(
        name=name,
        description=description,
        version=version,
        provider=provider,
        skills=skills or (),
        extensions=[*(extensions or ()), *_own_extensions(own, run_metadata=run_metadata)],
        versions=served.served,
        extended=extended_card is not None,
        security_schemes=guards.schemes,
        security_requirements=guards.requirements,
        http_json=http_json.first_taken(routes or ()) is None,
        push_notifications=push is not None,
    )
    card = CardTemplate(parts.facts(default_input_modes, default_output_modes), settings)
    serving = parts.serving(
        guards,
        card,
        settings.extensions,
        versions=served,
        tenants=tenants_of(tenants, routes or (), docs_url),
        extended=_extended(extended_card, card, url, guards),
    )
    index = Index(card, url)
    return A2AApp(
        store,
        parts.service,
        hosting=parts.hosting,
        guard=guards,
        metering=metering,
        storage=None if own is None else own.storage,
        broker=None if own is None else own.broker,
        allowed_hosts=None if allowed_hosts is None else AllowedHosts(allowed_hosts),
        answer_time=limits.answer_time,
        **_shown(settings, name or agent.name, url, docs_url),
        debug=debug,
        fallback=fallback(serving, Discovery(card, url), index, routes or (), exception_handlers),
        routes=app_routes(serving, Discovery(card, url), parts.ready, index, routes or ()),
        middleware=[*cors_middleware(cors), *(middleware or ())],
        exception_handlers=exception_handlers,
        lifespan=_lifespan(parts.hosting, lifespan),
    )


def _check(namespace: str | None, backend: object, docs_url: str | None) -> None:
    if namespace is not None and isinstance(backend, Backend):
        raise TypeError('namespace= is for the backends that to_a2a() makes; a Backend has its own.')
    if docs_url is not None and not docs_url.startswith('/'):
        raise ValueError(f'docs_url takes a path that begins with a slash, such as /docs, not {docs_url!r}.')


def _own_extensions(own: OwnParts | None, *, run_metadata: bool) -> list[AgentExtension]:
    """The extensions of this package that the card declares."""
    waits = own is None or own.foreign is None  # a worker of the user's own waits for clients in its own way
    return [*([EXTENSION] if run_metadata else []), *([PENDING_CALLS] if waits else [])]


def _shown(card: CardSettings, name: str | None, url: str | None, docs_url: str | None) -> dict[str, Any]:
    """What FastA2A keeps of a card, and where it shows it."""
    return {
        'name': name,
        'url': url or '',
        'docs_url': docs_url,
        'version': card.version,
        'description': card.description,
        'provider': card.provider,
        'skills': list(card.skills) or None,
        'extensions': list(card.extensions),
        'security_schemes': dict(card.security_schemes) or None,
        'security_requirements': list(card.security_requirements) or None,
    }


def _reply(rule: Rule, own: OwnParts | None) -> Rule:
    if rule != 'task' and own is not None and own.storage is not None:
        raise TypeError('reply= needs conversations that to_a2a() keeps; with storage= or worker= answers are tasks.')
    return rule


def _extended(
    said: MakeCard | Mapping[str, Any] | None, card: CardTemplate, url: str | None, guards: Guard
) -> ExtendedCard | None:
    if said is not None and guards.anonymous:
        raise TypeError('extended_card= needs auth= or authenticate=: it is for callers that are known.')
    return None if said is None else ExtendedCard(card, url, said)


def _metering(quotas: Quotas, store: Backend, own: OwnParts | None) -> Metering:
    if quotas.budgets and own is not None and own.foreign is not None:
        raise TypeError('Quotas.budgets need to know what runs use, which a worker= of your own does not tell.')
    return Metering(quotas, store.quotas, store.now)


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
