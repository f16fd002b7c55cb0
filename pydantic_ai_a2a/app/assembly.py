"""The parts that serve one agent over one backend: service, workers, hosting and dispatcher."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic_ai.agent import AbstractAgent
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match, Route, Router
from starlette.types import ASGIApp, ExceptionHandler, Receive, Scope, Send

from ..agent.connections import Connections
from ..agent.dependencies import Dependencies, Hooks, keep_caller
from ..agent.downloads import read_referenced
from ..agent.options import (
    NO_DEPS,
    NO_ENGINE,
    NO_MODEL,
    RunOptions,
    check_partial_data,
    check_tools,
    durability,
    known_tools,
    lacks_deps,
    may_have_model,
    may_have_own_output,
    models_of,
)
from ..agent.runner import Runner, RunsAgent
from ..agent.trace import Trace
from ..auth.credentials import CredentialVault
from ..auth.guard import Guard
from ..auth.tenants import Tenants, is_name
from ..card.template import CardFacts, CardSchemas, CardTemplate
from ..conversion import schemas
from ..conversion.inbound import (
    Accepts,
    accepts,
    check_parts,
    check_types,
    media_range,
    resolve_audio_types,
    resolve_profile,
)
from ..conversion.outbound import OutputMapper
from ..conversion.schemas import MAX_BYTES, MAX_DEPTH, ClientTools, TypedInput, is_small
from ..errors import UnsupportedOperationError, needs_extra
from ..fasta2a.own_parts import agent_worker, foreign_worker
from ..http import http_json
from ..http.cached_answers import CachedAnswer
from ..http.card import CARD_PATH, KEYS_PATH, OLDER_CARD_PATH, Discovery, key_set
from ..http.health import LIVE_PATH, READY_PATH, Live, Ready
from ..http.index import Index
from ..http.jsonrpc import JsonRpc
from ..http.playground.page import Playground
from ..http.request_bodies import request_late
from ..http.routing import AnyPath
from ..http.urls import check_url
from ..protocol.versions import Versions
from ..quotas import Metering
from ..runs.agent_job import AgentJob
from ..runs.direct_replies import DirectRuns
from ..runs.hosting import Hosting
from ..runs.job import Job
from ..runs.run_messages import plain_read
from ..runs.worker import Worker
from ..service.dispatch import Dispatcher
from ..service.extended_card import ExtendedCard
from ..service.request_flow import Serving
from ..service.slow_clients import SlowClients
from ..service.submissions import Submissions
from ..service.tasks import Service
from ..service.unsent_answers import Readers
from ..settings import Access, Approvals, Push, Settings, TenantRule
from ..signing.algorithms import Key
from ..signing.push_signatures import SignPush
from ..store.ports import Backend
from ..types import Message, frozen
from .conflicting_options import check_signing

if TYPE_CHECKING:
    from ..engines.engine import AtEngine, Engine
    from ..push.registration import Registration
    from ..push.sender import Sending
    from ..signing.app_signer import AppSigner


logger = logging.getLogger('pydantic_ai_a2a')


def _webhooks(backend: Backend, push: Push, sign: SignPush | None) -> tuple[Registration, Sending]:
    try:
        from ..push.sender import webhooks  # noqa: PLC0415 - its HTTP client is of an extra
    except ImportError as error:
        raise ImportError(needs_extra('push=', 'push')) from error
    return webhooks(backend, push, backend.now, sign)


class Assembly:
    """The parts that serve one agent."""

    def __init__(
        self,
        agent: AbstractAgent[Any, Any],
        backend: Backend,
        settings: Settings,
        *,
        service: str,
        sign_push: SignPush | None,
        conversion: Conversion,
        engine: Engine | None = None,
    ) -> None:
        self._agent = agent
        self._conversion = conversion
        self._limits = limits = settings.limits
        quotas = limits.quotas
        self._metering = metering = None if quotas is None else Metering(quotas, backend.quotas, backend.now)
        workers, push = settings.workers, settings.push
        credentials = settings.access.credentials
        vault = None if credentials is None else CredentialVault(credentials, backend.credentials, backend.now)

        make_job = partial(conversion.job, backend, metering, vault)
        self.at_engine = None if engine is None else _at_engine(engine, conversion, backend, make_job)
        """What the engine needs of the app; None without an engine."""

        def make_worker() -> Worker:
            if not conversion.has_model:
                logger.warning('%s Runs without a model fail.', NO_MODEL)
            if engine is None and (capability := durability(agent, conversion.options)) is not None:
                logger.warning(NO_ENGINE, capability)
            if conversion.lacks_deps:
                logger.warning('%s Tools get None instead.', NO_DEPS)
            return Worker(backend, make_job(runner=self.at_engine), settings, metering=metering)

        def entered_engine() -> AbstractAsyncContextManager[None]:
            at = self.at_engine if self.hosting.runs_tasks else None
            return nullcontext() if at is None else at.engine.serving(at)

        self.trace = conversion.trace
        """The steps of runs for a developer."""
        self.direct = None
        """Answers messages with messages; None: all answers are tasks."""
        if (reply := settings.messages.reply) != 'task':
            job = partial(conversion.job, backend, metering)
            limit, max_wait = workers.running, limits.max_wait
            check = conversion.connections.check
            self.direct = DirectRuns(
                reply, backend, job, metering=metering, limit=limit, max_wait=max_wait, check=check
            )
        registration, sending = (None, None) if push is None else _webhooks(backend, push, sign_push)
        entered = backend if isinstance(backend, AbstractAsyncContextManager) else nullcontext()
        stores = (lambda: entered, sending or nullcontext, *((entered_engine,) if engine else ()))
        self.hosting = Hosting(
            make_worker,
            # Activities connect to MCP servers themselves; a kept connection would die with its server.
            agent if engine is None or engine.in_server else nullcontext(),
            conversion.connections,
            settings,
            backend=backend,
            service=service,
            store=LoopExitStack(*stores),
            beside=None if self.direct is None else self.direct.drain,
        )
        smallest_read = partial(backend.reader.load, 'health', None, history_length=0, artifacts=False)
        self.ready = Ready(self.hosting.components, smallest_read, backend.check_writes)
        submissions = Submissions(
            settings,
            check_content=conversion.check_content,
            check_output=conversion.check_output,
            client_schema=conversion.client_schema,
            accepting=self.hosting.accepting,
            now=backend.now,
            push=registration,
            client_tools=conversion.client_tools,
        )
        self.service = Service(
            backend,
            settings,
            submissions,
            metering=metering,
            push=registration,
            offers=self.hosting.offer,
            vault=vault,
        )

    @property
    def takes_schemas(self) -> bool:
        """True if messages may ask for an answer by a JSON Schema of the client."""
        return self._conversion.takes_schemas

    def serving(
        self,
        guard: Guard,
        card: CardTemplate,
        *,
        versions: Versions,
        tenants: Tenants | None,
        extended: ExtendedCard | None,
    ) -> Serving:
        """Return the parts that the bindings need."""
        limits = self._limits
        dispatcher = Dispatcher(
            service=self.service,
            guard=guard,
            metering=self._metering,
            card=card,
            extended=extended,
            direct=self.direct,
            tenants=tenants,
            start=self.hosting.begin,
            keep=self._conversion.keep or (None if guard.anonymous else keep_caller),
        )
        return Serving(
            dispatcher=dispatcher,
            versions=versions,
            limits=limits,
            senders=SlowClients(limits.body_time, request_late),
            readers=Readers(limits.answer_time, limits.unsent),
            streams=self.hosting.streams,
        )

    def facts(self, input_modes: Sequence[str] | None, output_modes: Sequence[str] | None) -> CardFacts:
        """Return the facts of the agent for its card. Without modes, the agent's own modes are used."""
        description = self._agent.description
        schemas = self._conversion.schemas
        return CardFacts(
            name=self._agent.name,
            description=description if isinstance(description, str) else None,
            input_modes=input_modes
            or (self._conversion.takes.input_modes if schemas.input is None else ['application/json']),
            output_modes=output_modes or self._conversion.outputs.modes,
            schemas=schemas,
        )


class LoopExitStack(AbstractAsyncContextManager[None]):
    """Enters several context managers together, once in each event loop.

    Args:
        makers: Each returns a context manager for the running loop.
    """

    def __init__(self, *makers: Callable[[], AbstractAsyncContextManager[Any]]) -> None:
        self._makers = makers
        self._stacks: dict[asyncio.AbstractEventLoop, AsyncExitStack] = {}

    async def __aenter__(self) -> None:
        async with AsyncExitStack() as stack:
            for make in self._makers:
                await stack.enter_async_context(make())
            self._stacks[asyncio.get_running_loop()] = stack.pop_all()

    async def __aexit__(self, *error: Any) -> bool | None:
        return await self._stacks.pop(asyncio.get_running_loop()).__aexit__(*error)


# --- the routes of an app in the order in which they are tried, and the tenants' names that the paths exclude ---------


def exact_routes(serving: Serving, card: Discovery, ready: Ready, keys: CachedAnswer | None) -> list[Route]:
    """Return the routes whose paths have no params.

    Args:
        serving: The parts of the app.
        card: Serves the card.
        ready: Serves the readiness of the app.
        keys: Serves the public keys of signatures; None without signatures.
    """
    return [
        _PostOnly('/', JsonRpc(serving), methods=['POST']),
        Route(CARD_PATH, card, methods=['GET', 'HEAD']),
        Route(LIVE_PATH, Live(), methods=['GET', 'HEAD']),
        Route(READY_PATH, ready, methods=['GET', 'HEAD']),
        *([] if keys is None else [Route(KEYS_PATH, keys, methods=['GET', 'HEAD'])]),
    ]


def app_routes(
    serving: Serving, exact: Sequence[Route], card: Discovery, index: Index, own: Sequence[BaseRoute]
) -> list[BaseRoute]:
    """Return the routes of an app: ours, then the user's own, then ours with wide patterns.

    Args:
        serving: The parts of the app.
        exact: See `exact_routes`.
        card: Serves the card.
        index: Names the card in refusals.
        own: The user's routes.
    """
    taken, tenants = http_json.first_taken(own), serving.dispatcher.tenants
    if taken is not None:
        logger.warning(
            'The HTTP+JSON binding is not served: routes= already uses its path %s. Change the path of this route.',
            taken,
        )
    return [
        *([] if taken else http_json.routes(serving)),
        *exact,
        *own,
        *([] if tenants is None else _tenant_routes(serving, tenants, card, index, http=taken is None)),
        *([] if taken else http_json.last_routes(serving.versions, index.card_url)),
    ]


def fallback(
    serving: Serving,
    card: Discovery,
    index: Index,
    own: Sequence[BaseRoute],
    handlers: Mapping[Any, ExceptionHandler] | None,
    *,
    page: Playground | None,
) -> Router:
    """Return the router of requests that no route of the app takes, and no route that the user adds later.

    Without tenants, the name of a tenant in a path has no effect. Clients of HTTP+JSON write the tenant into the path,
    and clients of JSON-RPC write the tenant into the params.

    Args:
        serving: The parts of the app.
        card: Serves the card, here at its older path.
        index: Answers at the agent's own URL and at unknown paths.
        own: The user's routes.
        handlers: The user's exception handlers; one for HTTP 404 answers at unknown paths instead of `index`.
        page: The playground, if any.
    """
    reserved = _reserved(own)

    def takes(params: Mapping[str, str]) -> bool:
        return is_name(params['tenant'], reserved)

    below_any = serving.dispatcher.tenants is None and http_json.first_taken(own) is None
    routes = http_json.routes(serving, below='/{tenant}', takes=takes) if below_any else []
    routes.append(Route(OLDER_CARD_PATH, card, methods=['GET', 'HEAD']))
    if page is not None:
        routes += page.routes()
        if (tenants := serving.dispatcher.tenants) is not None:
            routes += page.routes(below='/{tenant}', takes=lambda params: tenants.may_be(params['tenant']))
    handled = {404, HTTPException} & (handlers or {}).keys()
    return Router(routes, redirect_slashes=False, default=None if handled else index)


class _PostOnly(Route):
    """A route without params in its path, for POST only. Other routes may take the other methods."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, child = super().matches(scope)
        return (match, child) if match is Match.FULL else (Match.NONE, {})


class ExactPaths:
    """The innermost middleware: calls the endpoints of some routes without the router.

    The endpoints answer all errors themselves, so they need none of the app's exception handlers. A call through the
    router takes twenty function calls more, and each pause of the endpoint another eight.

    Args:
        app: The router with its exception handlers, for the other requests.
        routes: Routes without params in their paths.
    """

    def __init__(self, app: ASGIApp, routes: Sequence[Route]) -> None:
        self._app = app
        self._endpoints: dict[tuple[str, str], ASGIApp] = {
            (route.path, method): route.app for route in routes for method in route.methods or ()
        }

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one request."""
        if scope['type'] == 'http':
            path = scope['path'].removeprefix(scope.get('root_path', '')) or '/'
            endpoint = self._endpoints.get((path, scope['method']))
            if endpoint is not None:
                scope['endpoint'] = endpoint
                scope.setdefault('path_params', {})
                return endpoint(scope, receive, send)
        return self._app(scope, receive, send)


def tenants_of(rule: TenantRule | None, own: Sequence[BaseRoute], docs_url: str | None) -> Tenants | None:
    """Return the tenants that requests may name; None without tenants. No tenant has the name of a path of the app."""
    if rule is None or rule is False:
        return None
    return Tenants(rule, {*_reserved(own), (docs_url or '').removeprefix('/').split('/')[0]})


def _reserved(own: Sequence[BaseRoute]) -> set[str]:
    """Return the first segments of the app's paths, which no tenant may have as a name."""
    paths = [CARD_PATH, LIVE_PATH, READY_PATH, *(str(getattr(route, 'path', '')) for route in own)]
    return {*http_json.FIRST_SEGMENTS, *(path.removeprefix('/').split('/')[0] for path in paths)}


def _tenant_routes(serving: Serving, tenants: Tenants, card: Discovery, index: Index, *, http: bool) -> list[BaseRoute]:
    """Return the routes of the bindings and the card below the path of a tenant."""

    def takes(params: Mapping[str, str]) -> bool:
        return tenants.may_be(params['tenant'])

    return [
        AnyPath('/{tenant}', JsonRpc(serving), methods=['POST'], takes=takes),
        *(http_json.routes(serving, below='/{tenant}', takes=takes) if http else ()),
        AnyPath(f'/{{tenant}}{CARD_PATH}', card, methods=['GET', 'HEAD'], takes=takes),
        AnyPath(f'/{{tenant}}{OLDER_CARD_PATH}', card, methods=['GET', 'HEAD'], takes=takes),
        *(http_json.last_routes(serving.versions, index.card_url, below='/{tenant}', takes=takes) if http else ()),
    ]


# --- the conversion of messages and results for one app, and the job for the app's tasks ------------------------------
# The composition root makes one `Conversion` of the options. The service checks messages by it.


class Conversion:
    """The conversion of an agent's messages and results, and the job that does its tasks.

    Args:
        agent: The agent.
        settings: Settings of the app.
        options: Options of every run.
        input_modes: Input modes of the card and of its skills, as the user names the modes; empty for those of the
            model.
        output_modes: Output modes of the card, as the user names the modes.
        dependencies: Makes separate `deps` for each run.
        hooks: Hooks for tool calls and for the ends of runs.
    """

    takes: Accepts
    outputs: OutputMapper

    def __init__(
        self,
        agent: AbstractAgent[Any, Any],
        settings: Settings,
        options: RunOptions,
        *,
        input_modes: Sequence[str],
        output_modes: Sequence[str] | None,
        dependencies: Dependencies | None = None,
        hooks: Hooks = Hooks(),
    ) -> None:
        messages, worker = settings.messages, settings.workers.worker
        self._settings, self._agent, self.options = settings, agent, options
        self.input = None if messages.input_type is None else TypedInput(messages.input_type)
        self._dependencies = dependencies
        self.keep = None if dependencies is None else dependencies.keep
        """Keeps the parts of a call that runs may ask for; None if no run asks for any."""
        self._hooks = hooks
        own = agent_worker(worker)
        self._foreign = foreign_worker(worker)
        self._is_known = own is not None or worker is None
        as_text, declared = settings.results.data_as_text, tuple(dict.fromkeys(map(media_range, input_modes)))
        if own is None:
            output_type = options.get('output_type') or agent.output_type
            self.outputs = OutputMapper(output_type, output_modes, data_as_text=as_text)
            models = models_of(agent, options)
            self._model_takes = accepts(
                resolve_profile(models),
                messages.allowed_file_url_schemes,
                force_download=messages.force_download,
                audio_types=resolve_audio_types(models),
            )
            self.takes = replace(self._model_takes, declared=declared)
            self._read, self._read_task = plain_read(self.takes), None
        else:
            options = own.options
            self.outputs = own.outputs_for(output_modes, data_as_text=as_text)
            self._model_takes = own.accepts
            self.takes = own.accepts = replace(own.accepts, declared=declared)  # the worker itself reads messages, too
            self._read, self._read_task = own.read_one, own.read if own.reads_itself else None
        self.client_tools = (
            ClientTools(settings.limits.client_tools, partial(_tools_of, agent, options, settings.approvals))
            if messages.client_tools
            else None
        )
        """Reads the tools of clients; None if clients cannot declare tools."""
        self.runner = None if self._foreign is not None else _runner(agent, options, settings, self.outputs, hooks)
        self.connections = Connections(agent) if self.runner is None else self.runner.connections
        """Connections of the agent to MCP servers."""
        self.schemas = CardSchemas(
            input=None if self.input is None else _published(self.input.schema, 'Messages.input_type'),
            output=_published(self.outputs.schema, 'output_type') if self._is_known else None,
        )
        """JSON Schemas for the card."""
        self.has_model = not self._is_known or may_have_model(agent, options)
        """True if runs may have a model without `agent.override`."""
        self.lacks_deps = self._is_known and dependencies is None and lacks_deps(agent, options)
        """True if runs have no dependencies, without `agent.override`, and the agent's tools expect some."""
        if self._is_known:
            for argument, tools in settings.approvals.named_tools.items():
                check_tools(agent, options, argument, tools)
            progress = settings.results.progress
            if progress.partial_data is True:
                check_partial_data(agent, options)

    def check_content(self, message: Message) -> None:
        """Refuse a message outside the agent's media types or input type. A custom worker has only declared types."""
        declares = bool(self.takes.declared)
        if declares or self._foreign is None:
            check_types(message, self.takes)
        if self.input is not None:
            self.input.check(message)
        if declares or (self._is_known and self._read_task is None):
            check_parts(message, self.takes)

    def check_output(self, modes: Sequence[str], schema: dict[str, Any] | None) -> None:
        """Refuse a client that accepts no output mode of the agent, or of the data that fits the client's schema."""
        if schema is not None:
            OutputMapper(dict[str, Any]).check(modes)
        elif self._is_known:
            self.outputs.check(modes)

    @property
    def trace(self) -> Trace:
        """The steps of runs for a developer; empty with a worker that runs tasks itself."""
        return Trace() if self.runner is None else self.runner.trace

    @property
    def takes_schemas(self) -> bool:
        """True if messages may ask for an answer by a JSON Schema of the client."""
        return self._settings.results.client_schemas and may_have_own_output(self._agent)

    def client_schema(self, message: Message) -> dict[str, Any] | None:
        """Return the JSON Schema that a message wants for its answer.

        Raises:
            UnsupportedOperationError: The agent takes no schemas of clients.
            InvalidParamsError: The schema cannot be used.
        """
        metadata = message.get('metadata', {})
        if schemas.CLIENT_SCHEMA_URI not in metadata:
            return None
        if not self.takes_schemas:
            raise UnsupportedOperationError(
                'The agent takes no JSON Schema of the client for its answer: send the message without the metadata of'
                f' {schemas.CLIENT_SCHEMA_URI}.'
            )
        return schemas.client_schema(metadata)

    def job(
        self,
        backend: Backend,
        metering: Metering | None = None,
        vault: CredentialVault | None = None,
        *,
        runner: RunsAgent | None = None,
    ) -> Job:
        """Return the job that runs the tasks; with a runner in the place of that of the agent."""
        if self._foreign is not None:
            from ..fasta2a.worker_job import WorkerJob  # noqa: PLC0415 - only apps with a FastA2A worker need it

            return WorkerJob(self._foreign)
        assert self.runner is not None, 'there is no other worker'
        return AgentJob(
            backend,
            runner or self.runner,
            read=self._read,
            read_task=self._read_task,
            outputs=self.outputs,
            settings=self._settings,
            metering=metering,
            refer=partial(read_referenced, accepts=self._model_takes, size=self._settings.limits.referenced),
            dependencies=self._dependencies,
            hooks=self._hooks,
            vault=vault,
            client_tools=self.client_tools,
            typed_input=self.input,
        )


def _tools_of(agent: AbstractAgent[Any, Any], options: RunOptions, approvals: Approvals) -> set[str]:
    """Return the names that no tool of a client may have: those of the agent's tools, as far as known before a run.

    The settings may name tools that are known in a run only.
    """
    return known_tools(agent, options).union(*approvals.named_tools.values())


def _published(schema: dict[str, Any] | None, source: str) -> dict[str, Any] | None:
    """Return a schema for the card; None for a schema that clients of this package would not read."""
    if schema is None or is_small(schema):
        return schema
    logger.warning(
        'The JSON Schema of %s is not on the agent card: it has more than %d bytes, or is nested more than %d deep.',
        source,
        MAX_BYTES,
        MAX_DEPTH,
    )
    return None


def _runner(
    agent: AbstractAgent[Any, Any], options: RunOptions, settings: Settings, outputs: OutputMapper, hooks: Hooks
) -> Runner:
    hidden, download_time = settings.approvals.hide_arguments, settings.limits.download_time
    return Runner(agent, options, settings.results.progress, hidden, download_time, outputs=outputs, hooks=hooks)


def _at_engine(engine: Engine, conversion: Conversion, backend: Backend, job: Callable[..., Any]) -> AtEngine:
    from ..engines.engine import AtEngine  # noqa: PLC0415 - apps without an engine import none

    assert conversion.runner is not None, 'an engine cannot be combined with another worker'
    return AtEngine(engine, conversion.runner, backend, job)


# --- the signatures of an app -----------------------------------------------------------------------------------------
# Of its cards, and of its push notifications; and the public keys that the app serves.


@frozen
class Signatures:
    """The signatures of an app."""

    sign_card: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    """Signs the JSON of a card; None: cards are not signed."""
    sign_push: SignPush | None = None
    """Signs push notifications; None: push notifications are not signed."""
    key_set: CachedAnswer | None = None
    """The endpoint of the public keys; None without signatures."""


def signatures(access: Access, push: Push | None, url: str | None) -> Signatures:
    """Return the signatures of the settings.

    Raises:
        TypeError: See `check_signing`.
        ValueError: A key cannot be used, or two keys have the same id.
        ImportError: There are keys, and the extra `jwt` is not installed.
    """
    check_signing(access, push, url)
    pushes = () if push is None else push.signing
    cards, notifications = _signer(access.signing, 'Access.signing', url), _signer(pushes, 'Push.signing', url)
    pairs = [pair for signer in (cards, notifications) if signer is not None for pair in signer.keys]
    keys = {pair.kid: pair.public for pair in pairs}
    if repeated := next((pair.kid for pair in pairs if pair.public != keys[pair.kid]), None):
        raise ValueError(
            f'Access.signing and Push.signing have different keys or algorithms with the id {repeated!r}: give each '
            'key a `kid` of its own.'
        )
    return Signatures(
        sign_card=None if cards is None else cards.sign_card,
        sign_push=None if notifications is None else notifications.sign_push,
        key_set=key_set([*keys.values()]) if keys else None,
    )


def _signer(keys: Sequence[Key], setting: str, url: str | None) -> AppSigner | None:
    if url is None or not keys:
        return None
    check_url(url)
    try:
        from ..signing.app_signer import AppSigner  # noqa: PLC0415 - of an extra, and cryptography takes long to import
    except ImportError as error:
        raise ImportError(needs_extra(setting, 'jwt')) from error
    return AppSigner(keys, setting, url, url.removesuffix('/') + KEYS_PATH)
