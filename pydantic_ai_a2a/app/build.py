"""The composition root: `to_a2a` joins the parts and hands out one ASGI app."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Literal

from fasta2a.broker import Broker
from fasta2a.schema import AgentExtension, AgentProvider, SecurityRequirement, SecurityScheme, Skill
from fasta2a.storage import Storage
from pydantic_ai.agent import AbstractAgent
from starlette.middleware import Middleware
from starlette.routing import BaseRoute
from starlette.types import ExceptionHandler, Lifespan
from typing_extensions import Unpack

from ..agent.dependencies import DepsFactory, dependencies
from ..agent.hooks import Hooks, OnCancel, OnComplete, OnFailure
from ..agent.options import RunOptions
from ..arguments import checked
from ..auth.guard import Auth, guard
from ..backends.postgres.settings import Postgres
from ..card import CardSettings, CardTemplate
from ..conversion.asking import EXTENSION as PENDING_CALLS
from ..fasta2a.parts import OwnParts, own_parts
from ..http import http_json
from ..http.browser import AllowedHosts, cors_middleware
from ..http.card import Discovery
from ..http.extended_card import ExtendedCard
from ..http.index import Index
from ..ports import Backend
from ..protocol.run_metadata import EXTENSION
from ..protocol.versions import Versions
from ..quotas import Metering
from ..runs.host import Hosting
from ..settings import Access, Approvals, Limits, Messages, Push, Results, Retention, Settings, Workers
from .app import A2AApp
from .combinations import check_auth, check_parts, check_run
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
    security_schemes: dict[str, SecurityScheme] | None = None,
    security_requirements: list[SecurityRequirement] | None = None,
    docs_url: str | None = None,
    default_input_modes: Sequence[str] | None = None,
    default_output_modes: Sequence[str] | None = None,
    # Server
    backend: Literal['memory'] | str | Postgres | Backend = 'memory',
    storage: Storage[Any] | None = None,
    broker: Broker | None = None,
    auth: Auth | None = None,
    access: Access = Access(),
    approvals: Approvals = Approvals(),
    limits: Limits = Limits(),
    messages: Messages = Messages(),
    push: Push | None = None,
    results: Results = Results(),
    retention: Retention = Retention(),
    workers: Workers = Workers(),
    # Runs
    deps_factory: DepsFactory | None = None,
    on_complete: OnComplete | None = None,
    on_cancel: OnCancel | None = None,
    on_failure: OnFailure | None = None,
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
        security_schemes: How callers authenticate, for the card, where `auth` is a function; the card has the schemes
            of an `Authenticator` by itself.
        security_requirements: Which of the schemes are needed, for the card; like `security_schemes`.
        docs_url: Path of FastA2A's page that shows the card; None for none. Its form sends FastA2A's own methods, which
            are not served.
        default_input_modes: Media types on the card; what the model's profile takes.
        default_output_modes: Media types on the card; from the output type.
        backend: Where tasks and conversations live: in the memory of this process (`'memory'`), in a SQLite file
            (`'sqlite:///relative.db'`, `'sqlite:////absolute.db'`; with `?synchronous=normal`, a power failure may undo
            the last moments), in a PostgreSQL database (`'postgresql://user@host/database'`, or a `Postgres` with its
            options), or a `Backend` of your own.
        storage: A FastA2A storage of your own for tasks and contexts. What it has no method for is refused with -32004:
            lists of tasks, erasing, conversations from Python, and subscribing to a task of another process or
            continuing it.
        broker: A FastA2A broker of your own, which carries the operations of tasks.
        auth: How callers authenticate: one way, or several of which each will do; or a function of the request that
            returns its caller, or None for HTTP 401. Whoever does not is refused with HTTP 401 before the request's
            body is read. Without `auth` all callers are one anonymous owner, who see each other's tasks.
        access: How the app is reached, and what its callers may do: hosts, web pages, protocol versions, scopes,
            owners, tenants.
        approvals: How clients answer calls that wait for them, and what clients see of these calls.
        limits: What requests, streams, queues and callers may take.
        messages: What messages of clients may hold, and what becomes of them.
        push: Lets clients register webhooks, which are told of their tasks; None refuses them. The server then calls
            URLs that clients choose: see "Push notifications".
        results: How answers reach clients, and what clients see of runs besides. A worker that runs tasks by itself
            decides that by itself.
        retention: The name under which tasks and conversations are stored, and how long they are kept.
        workers: How many tasks run at once, and how they stop; or a FastA2A worker of your own.
        deps_factory: Makes the `deps` of each run, instead of one `deps` for all of them: a function, async or not, of
            the `CallContext`. If what it returns is a context manager, async or not, that is entered for the run, and
            left however the run ends. What it raises fails the task. It is called in the event loop.
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
            `PrefectAgent`, or a `TemporalAgent` that is given a `timeout`; an output type is given to an agent with
            output validators; or options do not go together, such as a `Backend` and a `storage`, run options and a
            worker, `deps_factory` and `deps`, or scopes without `auth`.
        ValueError: A string is none of those that an argument takes, or a number is NaN or infinite; `url` has no
            scheme; `hide_arguments` names a tool that the agent does not have; the agent card would not be valid;
            `auth` is empty, or `scopes` has none; `deps_headers` names credentials; the worker has another agent,
            storage or broker; the backend is none that there is, or in use by another app of this process; or it is
            memory, and a server of several processes imports the app, or has no push notifications.
    """
    _check_docs_url(docs_url)
    settings = Settings(
        access=access,
        approvals=approvals,
        limits=limits,
        messages=messages,
        push=push,
        results=results,
        retention=retention,
        workers=workers,
    )
    hooks = Hooks(on_complete=on_complete, on_cancel=on_cancel, on_failure=on_failure)
    check_parts(agent, settings, backend=backend, storage=storage, broker=broker)
    check_run(settings, deps_factory, hooks, run)
    check_auth(access, auth, card_security=bool(security_schemes or security_requirements))
    own = own_parts(storage, broker, workers.worker)
    guards = guard(auth, access, security_schemes, security_requirements)
    store = choose_backend(backend, retention.namespace or name or agent.name or 'agent', limits, own)
    metering = None if limits.quotas is None else Metering(limits.quotas, store.quotas, store.now)
    parts = Assembly(
        agent,
        store,
        settings,
        metering=metering,
        conversion=Conversion(
            agent,
            settings,
            run,
            output_modes=default_output_modes,
            dependencies=dependencies(deps_factory, messages.deps_headers, run, guards.schemes),
            hooks=hooks,
        ),
    )
    versions = Versions(access.versions)
    about = CardSettings(
        name=name,
        description=description,
        version=version,
        provider=provider,
        skills=skills or (),
        extensions=[*(extensions or ()), *_own_extensions(own, run_metadata=results.run_metadata)],
        versions=versions.served,
        extended=access.extended_card is not None,
        security_schemes=guards.schemes,
        security_requirements=guards.requirements,
        http_json=http_json.first_taken(routes or ()) is None,
        push_notifications=push is not None,
    )
    card = CardTemplate(parts.facts(default_input_modes, default_output_modes), about)
    serving = parts.serving(
        guards,
        card,
        about.extensions,
        versions=versions,
        tenants=tenants_of(access.tenants, routes or (), docs_url),
        extended=None if access.extended_card is None else ExtendedCard(card, url, access.extended_card),
    )
    index, discovery = Index(card, url), Discovery(card, url)
    return A2AApp(
        store,
        parts.service,
        hosting=parts.hosting,
        guard=guards,
        metering=metering,
        storage=None if own is None else own.storage,
        broker=None if own is None else own.broker,
        allowed_hosts=None if access.allowed_hosts is None else AllowedHosts(access.allowed_hosts),
        answer_time=limits.answer_time,
        **_shown(about, name or agent.name, url, docs_url),
        debug=debug,
        fallback=fallback(serving, discovery, index, routes or (), exception_handlers),
        routes=app_routes(serving, discovery, parts.ready, index, routes or ()),
        middleware=[*cors_middleware(access.cors), *(middleware or ())],
        exception_handlers=exception_handlers,
        lifespan=_lifespan(parts.hosting, lifespan),
    )


def _check_docs_url(docs_url: str | None) -> None:
    if docs_url is not None and not docs_url.startswith('/'):
        raise ValueError(f'docs_url takes a path that begins with a slash, such as /docs, not {docs_url!r}.')


def _own_extensions(own: OwnParts | None, *, run_metadata: bool) -> list[AgentExtension]:
    """The extensions of this package that the card declares."""
    waits = own is None or own.foreign is None  # a worker of the user's own waits for clients in its own way
    return [*([EXTENSION] if run_metadata else []), *([PENDING_CALLS] if waits else [])]


def _shown(card: CardSettings, name: str | None, url: str | None, docs_url: str | None) -> dict[str, Any]:
    """The arguments of FastA2A that describe the agent, and the path of its page."""
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
