"""The composition root: `to_a2a` joins the parts and hands out one ASGI app."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, overload
from urllib.parse import urlsplit

from fasta2a.broker import Broker
from fasta2a.schema import AgentExtension, AgentProvider, SecurityRequirement, SecurityScheme, Skill
from fasta2a.storage import Storage
from pydantic_ai.agent import AbstractAgent
from starlette.middleware import Middleware
from starlette.routing import BaseRoute
from starlette.types import ExceptionHandler, Lifespan
from typing_extensions import Unpack

from ...arguments import checked
from ...public_hosts import is_loopback
from ...settings.access import Access
from ...settings.app_settings import Settings
from ...settings.approvals import Approvals
from ...settings.limits import Limits
from ...settings.messages import Messages
from ...settings.push import Push
from ...settings.results import Results
from ...settings.retention import Retention
from ...settings.workers import Workers
from ...wire.extensions import own_extensions
from ...wire.extensions.client_schema import CLIENT_SCHEMA
from ...wire.extensions.client_tools import CLIENT_TOOLS
from ...wire.extensions.own_extensions import RUN_METADATA
from ...wire.extensions.pending_calls_extension import PENDING_CALLS
from ...wire.protocol.versions import Versions
from ..agent.dependencies import DepsFactory, dependencies
from ..agent.hooks import Hooks, OnCancel, OnComplete, OnFailure, OnToolCall, OnToolResult, OnWaiting
from ..agent.run_options import RunOptions
from ..auth.guard import Auth, guard
from ..card.card_settings import CardSettings
from ..card.template import CardTemplate
from ..fasta2a.user_parts import OwnParts, own_parts
from ..http import http_json
from ..http.allowed_hosts import AllowedHosts
from ..http.card_and_keys import Discovery
from ..http.cors import cors_middleware
from ..http.playground.page import Playground
from ..http.playground.steps_endpoint import Steps
from ..http.root_and_unknown_paths import Index
from ..http.router_bypass import ExactPaths
from ..runs.app_hosting import Hosting
from ..service.extended_card import ExtendedCard
from ..store.ports import Backend
from ..store.postgres.settings import Postgres
from .a2a_app import A2AApp
from .agent_names import check_namespace, inferred_name
from .assembly import Assembly
from .backend_checks import check_backend
from .backend_choice import choose_backend
from .configured_agent import ConfiguredAgent
from .conflicting_options import check_auth, check_engine, check_run, check_waiting
from .playground import check_docs_url, log_playgrounds, playground_link, playground_path
from .routes import app_routes, exact_routes, fallback, tenants_of
from .signatures import signatures

if TYPE_CHECKING:
    from pydantic_ai.output import OutputSpec

    from ..agent.hooks import OutputT
    from ..agent.run_options import DepsT
    from ..runs.engine import Engine
    from .app_options import AppOptions
else:
    Engine = object  # `check_engine` checks the class: apps without an engine import none


_SERVICE = 300
"""The most characters of a service in words: its row in the store has a key with them."""


@overload
def to_a2a(
    agent: AbstractAgent[DepsT, OutputT], *, output_type: None = None, **options: Unpack[AppOptions[DepsT, OutputT]]
) -> A2AApp: ...
@overload
def to_a2a(
    agent: AbstractAgent[DepsT, Any],
    *,
    output_type: OutputSpec[OutputT] | None,
    **options: Unpack[AppOptions[DepsT, OutputT]],
) -> A2AApp: ...
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
    docs_url: str | None = '/docs',
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
    engine: Engine | None = None,
    # Runs
    deps_factory: DepsFactory | None = None,
    on_complete: OnComplete | None = None,
    on_cancel: OnCancel | None = None,
    on_failure: OnFailure | None = None,
    on_waiting: OnWaiting | None = None,
    on_tool_call: OnToolCall | None = None,
    on_tool_result: OnToolResult | None = None,
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

    The app starts, and needs an API key, only at the first request.

    Args:
        agent: Any Pydantic AI agent.
        name: Name on the agent card. Default: the agent's name, else the name of its variable or module.
        url: The agent's public URL, for the card. Default: the URL of the request.
        version: The agent's own version, for the card. Default `1.0.0`.
        description: Purpose of the agent, for the card. Default: the agent's description, else a neutral sentence.
            Instructions and system prompts never appear on the card.
        provider: Organization that offers the agent, for the card. Default: none.
        skills: Skills of the agent, for the card. Default: one skill, the agent as a whole.
        extensions: Protocol extensions that the card declares; a request must declare the required ones. Default: none.
        security_schemes: Ways to authenticate, for the card, if `auth` is a function. The schemes of an `Authenticator`
            are on the card by default.
        security_requirements: Required schemes, for the card; like `security_schemes`.
        docs_url: Path of the playground, a page in the browser that shows the card and talks to the agent. None: no
            page. Default `/docs`.
        default_input_modes: Accepted media types, such as `application/x-protobuf` or `image/*`, besides those of
            `skills`. Other types are refused. Default: the media types of the model's profile.
        default_output_modes: Returned media types, for the card. Default: the media types of the output type.
        backend: Store of tasks and conversations: the memory of this process (`'memory'`, the default), a SQLite file
            (`'sqlite:///relative.db'`, `'sqlite:////absolute.db'`; with `?synchronous=normal`, a power failure may undo
            the last moments), a PostgreSQL database (`'postgresql://user@host/database'`, or a `Postgres` with its
            options), or a `Backend` of your own.
        storage: A FastA2A storage of your own for tasks and contexts. Default: none. Operations that the storage has no
            method for are refused with error -32004: lists of tasks, erasing, conversations from Python, and
            subscribing to or continuing a task of another process.
        broker: A FastA2A broker of your own, which carries the operations of tasks. Default: none.
        auth: Authentication of callers: an `Authenticator`, several alternatives, or a function of the request that
            returns the caller, or None for HTTP 401. Requests without valid credentials get HTTP 401 before the body is
            read. Default: all callers share one anonymous identity and can see each other's tasks.
        access: Access to the app: hosts, web pages, protocol versions, scopes, owners, tenants, extended card and
            signatures.
        approvals: Answers of clients to waiting tool calls, and visibility of the calls' arguments.
        limits: Limits of requests, messages, streams and queues, and quotas of callers.
        messages: Content of messages, and their treatment.
        push: Webhooks that clients register for their tasks. The server then calls URLs that clients choose: see "Push
            notifications". Default: webhooks are refused.
        results: Delivery of answers and progress to clients. A FastA2A worker that runs tasks itself ignores these
            settings.
        retention: Name and lifetime of stored tasks and conversations.
        workers: Number of tasks that run at once, shutdown times, leases; or a FastA2A worker of your own.
        engine: Engine that runs the agent as workflows: `Temporal(target, task_queue=...)` of
            `pydantic_ai_a2a.engines.temporal`, or `DBOS(url)` of `pydantic_ai_a2a.engines.dbos`. Default: the server
            runs the agent, and the backend keeps the steps of a run.
        deps_factory: Function of the `CallContext`, which may be async, that makes the `deps` of each run. If it
            returns a context manager, async or not, the context is entered for the run and always left. An exception of
            the function fails the task. It is called in the event loop. Default: `deps` for all runs.
        on_complete: Function, like the option of Pydantic AI's UI adapters, called with the `AgentRunResult` of each
            completed run: at most once, after its answer is stored. It may be async, else it is called in a thread. Its
            exceptions are only logged. Default: none.
        on_cancel: Function, like `on_complete`, called with the `RunCancelled` of each run that was cancelled with its
            task.
        on_failure: Function, like `on_complete`, called with a `RunFailure` for each failed run.
        on_waiting: Function, like `on_complete`, called with a `TaskPause` for each task that begins to wait for an
            answer: at least once, also after a crash, unless the task goes on before. With `storage`, at most once.
        on_tool_call: Function, sync or async, called with a `ToolCall` before a tool runs. The tool waits for the
            function. Its exceptions are only logged. Default: none.
        on_tool_result: Function, like `on_tool_call`, called with a `ToolResult` after a tool has returned or raised.
        debug: See Starlette.
        routes: Further routes. If a route has a path of the HTTP+JSON binding, such as `/tasks`, the binding is not
            served.
        middleware: See Starlette. Prefer pure ASGI middleware: a `BaseHTTPMiddleware` slows every request.
        exception_handlers: See Starlette.
        lifespan: See Starlette. It is entered within the app's own lifespan.
        run: Options for every run of the agent, with the names of `Agent.run`; see `RunOptions`.

    Raises:
        TypeError: An argument has a wrong type, or a keyword is unknown. The agent is a `DBOSAgent`, a `PrefectAgent`,
            or a `TemporalAgent` with a `timeout`. The agent has output validators, and there is an `output_type`.
            Options exclude each other, such as a `Backend` and a `storage`, run options and a worker, or `deps_factory`
            and `deps`. `scopes` lacks `auth`.
        AgentUnnamed: The agent has no name, and the backend is a file or a database.
        ValueError: A string is not one of the allowed values, or a number is NaN or infinite. `url` has no scheme, or
            `docs_url` no slash at its beginning.
            `hide_arguments` names a tool that the agent does not have. The agent card would not be valid. `auth` or
            `scopes` is empty. `deps_headers` names credentials. The worker has another agent, storage or broker. The
            backend is unknown, in use by another app of this process, without push notifications, or memory in a server
            of several processes.
    """
    check_docs_url(docs_url)
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
    hooks = Hooks(
        on_complete=on_complete,
        on_cancel=on_cancel,
        on_failure=on_failure,
        on_waiting=on_waiting,
        on_tool_call=on_tool_call,
        on_tool_result=on_tool_result,
    )
    check_backend(agent, settings, backend=backend, storage=storage, broker=broker)
    check_run(settings, deps_factory, hooks, run)
    check_auth(access, approvals, auth, limits.quotas, card_security=bool(security_schemes or security_requirements))
    signed = signatures(access, push, url)
    own = own_parts(storage, broker, workers.worker)
    guards = guard(auth, access, security_schemes, security_requirements)
    card_name = name or agent.name or inferred_name(agent)
    namespace = retention.namespace or name or agent.name
    store = choose_backend(backend, namespace or 'agent', limits, own)
    check_namespace(namespace, card_name, backend)
    check_waiting(hooks, store)
    if engine is not None:
        settings = check_engine(engine, agent, settings, hooks, run, durable=store.durable and own is None)
    versions = Versions(access.versions)
    has_http_json = http_json.first_taken(routes or ()) is None
    tenants = tenants_of(access.tenants, routes or (), docs_url)
    docs_url = playground_path(docs_url, versions.served, http_json=has_http_json)
    parts = Assembly(
        agent,
        store,
        settings,
        service=_service(card_name, skills or ()),
        sign_push=signed.sign_push,
        configured=ConfiguredAgent(
            agent,
            settings,
            run,
            input_modes=_input_modes(default_input_modes, skills or ()),
            output_modes=default_output_modes,
            dependencies=dependencies(deps_factory, messages.deps_headers, run, guards.schemes),
            hooks=hooks,
        ),
        link=playground_link(url, docs_url, tenants),
        engine=engine,
    )
    about = CardSettings(
        name=card_name,
        description=description,
        version=version,
        provider=provider,
        skills=skills or (),
        extensions=[*(extensions or ()), *_own_extensions(own, settings, client_schemas=parts.takes_schemas)],
        versions=versions.served,
        extended=access.extended_card is not None,
        security_schemes=guards.schemes,
        security_requirements=guards.requirements,
        http_json=has_http_json,
        streaming=settings.results.stream != 'off',
        push_notifications=push is not None,
    )
    card = CardTemplate(parts.facts(default_input_modes, default_output_modes), about, signed.sign_card)
    serving = parts.serving(
        guards,
        card,
        versions=versions,
        tenants=tenants,
        extended=None if access.extended_card is None else ExtendedCard(card, url, access.extended_card),
    )
    for_developer = own is None and guards.anonymous and _is_of_one_machine(access, url)
    steps = Steps(store, serving.dispatcher.tenants, parts.trace) if for_developer else None
    page = None
    if docs_url is not None:
        page = Playground(docs_url, limits, steps, anonymous=guards.anonymous, durable=store.durable)
    index, discovery = Index(card, url, docs_url), Discovery(card, url, versions)
    exact = exact_routes(serving, discovery, parts.ready, signed.key_set)
    return A2AApp(
        store,
        serving,
        card=card,
        hosting=parts.hosting,
        storage=None if own is None else own.storage,
        broker=None if own is None else own.broker,
        allowed_hosts=None if access.allowed_hosts is None else AllowedHosts(access.allowed_hosts),
        **_shown(about, url),
        docs_url=docs_url,
        debug=debug,
        fallback=fallback(serving, discovery, index, routes or (), exception_handlers, page=page),
        routes=app_routes(serving, exact, discovery, index, routes or ()),
        middleware=[*cors_middleware(access.cors), *(middleware or ()), Middleware(ExactPaths, exact)],
        exception_handlers=exception_handlers,
        lifespan=_lifespan(parts.hosting, lifespan),
        at_engine=parts.at_engine,
    )


def _service(name: str, skills: Sequence[Skill]) -> str:
    """Return what tells two agents of one namespace apart: the name and the skills of the card, in words."""
    ids = ', '.join(sorted(repr(skill.get('id')) for skill in skills))
    words = f'{name!r} with the skills {ids}' if ids else repr(name)
    return words if len(words) <= _SERVICE else f'{words[:_SERVICE]}… ({sha256(words.encode()).hexdigest()[:8]})'


def _own_extensions(own: OwnParts | None, settings: Settings, *, client_schemas: bool) -> list[AgentExtension]:
    """The extensions of this package that the card declares."""
    waits = own is None or own.foreign is None  # a user's own worker decides how tasks wait for clients
    declared = (
        (RUN_METADATA, settings.results.run_metadata),
        (own_extensions.LIVE_TEXT, waits and settings.results.stream not in ('whole', 'off')),
        (PENDING_CALLS, waits),
        (CLIENT_TOOLS, settings.messages.client_tools),
        (CLIENT_SCHEMA, client_schemas),
        (own_extensions.REPLAY, bool(settings.retention.idempotency_window)),
    )
    return [extension for extension, serves in declared if serves]


def _is_of_one_machine(access: Access, url: str | None) -> bool:
    """Return whether no setting says that other machines call the app, such as through a proxy."""
    names = [*(access.allowed_hosts or ()), *(() if url is None else (urlsplit(url).hostname or '',))]
    return access.anonymous_list is not False and all(is_loopback(name) for name in names)


def _input_modes(default: Sequence[str] | None, skills: Sequence[Skill]) -> list[str]:
    """Return the media types that the card declares; none if its default is the one of the model."""
    return [*default, *(mode for skill in skills for mode in skill.get('input_modes', ()))] if default else []


def _shown(card: CardSettings, url: str | None) -> dict[str, Any]:
    """The arguments of FastA2A that describe the agent."""
    return {
        'name': card.name,
        'url': url or '',
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
        if app.outermost:
            log_playgrounds(app)
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
