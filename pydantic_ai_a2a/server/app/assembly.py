"""The parts that serve one agent over one backend: service, workers, hosting and dispatcher."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic_ai.agent import AbstractAgent

from ...errors import needs_extra
from ...settings.app_settings import Settings
from ...settings.push import Push
from ...wire.protocol.versions import Versions
from ...wire.signing.push_signatures import SignPush
from ..agent.agent_inspection import NO_DEPS, NO_ENGINE, NO_MODEL, durability
from ..agent.dependencies import keep_caller
from ..auth.credential_vault import CredentialVault
from ..auth.guard import Guard
from ..auth.tenants import Tenants
from ..card.card_facts import CardFacts
from ..card.template import CardTemplate
from ..http.health import Ready
from ..http.request_bodies import request_late
from ..quotas import Metering
from ..runs.app_hosting import Hosting
from ..runs.direct_replies import DirectRuns
from ..runs.pause_hook import TaskLink
from ..runs.worker import Worker
from ..service.client_time_limits import SlowClients
from ..service.dispatch import Dispatcher
from ..service.extended_card import ExtendedCard
from ..service.request_flow import Serving
from ..service.service import Service
from ..service.submissions import Submissions
from ..service.unsent_answers import Readers
from ..store.ports import Backend
from .configured_agent import ConfiguredAgent
from .loop_exit_stack import LoopExitStack

if TYPE_CHECKING:
    from ..push.registration import Registration
    from ..push.webhooks import Sending
    from ..runs.engine import Engine
    from ..runs.engine_runner import EngineRunner


logger = logging.getLogger('pydantic_ai_a2a')


def _webhooks(backend: Backend, push: Push, sign: SignPush | None) -> tuple[Registration, Sending]:
    try:
        from ..push.webhooks import webhooks  # noqa: PLC0415 - its HTTP client is of an extra
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
        configured: ConfiguredAgent,
        link: TaskLink,
        engine: Engine | None = None,
    ) -> None:
        self._agent = agent
        self._configured = configured
        self._limits = limits = settings.limits
        self._live_on_request = settings.results.stream == 'on-request' and configured.runner is not None
        quotas = limits.quotas
        self._metering = metering = None if quotas is None else Metering(quotas, backend.quotas, backend.now)
        workers, push = settings.workers, settings.push
        credentials = settings.access.credentials
        vault = None if credentials is None else CredentialVault(credentials, backend.credentials, backend.now)

        make_job = partial(configured.job, backend, metering, vault)
        self.at_engine = None if engine is None else _at_engine(engine, configured, backend, make_job)
        """What the engine needs of the app; None without an engine."""

        def make_worker() -> Worker:
            if not configured.has_model:
                logger.warning('%s Runs without a model fail.', NO_MODEL)
            if engine is None and (capability := durability(agent, configured.options)) is not None:
                logger.warning(NO_ENGINE, capability)
            if configured.lacks_deps:
                logger.warning('%s Tools get None instead.', NO_DEPS)
            return Worker(backend, make_job(runner=self.at_engine), settings, metering=metering, link=link)

        def entered_engine() -> AbstractAsyncContextManager[None]:
            at = self.at_engine if self.hosting.runs_tasks else None
            return nullcontext() if at is None else at.engine.serving(at)

        self.trace = configured.trace
        """The steps of runs for a developer."""
        self.direct = None
        """Answers messages with messages; None: all answers are tasks."""
        if (reply := settings.messages.reply) != 'task':
            job = partial(configured.job, backend, metering)
            limit, max_wait = workers.running, limits.max_wait
            check = configured.connections.check
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
            configured.connections,
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
            check_content=configured.check_content,
            check_output=configured.check_output,
            client_schema=configured.client_schema,
            accepting=self.hosting.accepting,
            now=backend.now,
            push=registration,
            client_tools=configured.client_tools,
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
        return self._configured.takes_schemas

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
            live_on_request=self._live_on_request,
            keep=self._configured.keep or (None if guard.anonymous else keep_caller),
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
        schemas = self._configured.schemas
        return CardFacts(
            name=self._agent.name,
            description=description if isinstance(description, str) else None,
            input_modes=input_modes
            or (self._configured.takes.input_modes if schemas.input is None else ['application/json']),
            output_modes=output_modes or self._configured.outputs.modes,
            schemas=schemas,
        )


def _at_engine(engine: Engine, configured: ConfiguredAgent, backend: Backend, job: Callable[..., Any]) -> EngineRunner:
    from ..runs.engine_runner import EngineRunner  # noqa: PLC0415 - apps without an engine import none

    assert configured.runner is not None, 'an engine cannot be combined with another worker'
    return EngineRunner(engine, configured.runner, backend, job)
