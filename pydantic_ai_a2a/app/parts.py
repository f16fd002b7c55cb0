"""The parts that serve one agent over one backend: service, workers, hosting and dispatcher."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic_ai.agent import AbstractAgent

from ..agent.dependencies import keep_caller
from ..agent.options import NO_MODEL
from ..auth.callers import Tenants
from ..auth.credentials import CredentialVault
from ..auth.guard import Guard
from ..card import CardFacts, CardTemplate
from ..http.base import request_late
from ..http.exchange import Serving
from ..http.index import Ready
from ..http.slow_clients import Readers, SlowClients
from ..protocol.versions import Versions
from ..quotas import Metering
from ..runs.direct import Direct
from ..runs.hosting import Hosting
from ..runs.worker import Worker
from ..service.dispatch import Dispatcher, ExtendedCard, Extensions
from ..service.messages import Submissions
from ..service.tasks import Service
from ..settings import Push, Settings
from ..store.ports import Backend
from .conversion import Conversion

if TYPE_CHECKING:
    from ..push.registration import Registration
    from ..push.sender import Sending
    from ..signing.notifications import SignPush

__all__ = ('Assembly',)

logger = logging.getLogger('pydantic_ai_a2a')


def _webhooks(backend: Backend, push: Push, sign: SignPush | None) -> tuple[Registration, Sending]:
    try:
        from ..push.sender import webhooks  # noqa: PLC0415 - its HTTP client is of an extra
    except ImportError as error:
        raise ImportError("push= needs more packages: pip install 'pydantic-ai-a2a[push]'") from error
    return webhooks(backend, push, backend.now, sign)


class Assembly:
    """The parts that serve one agent."""

    def __init__(
        self,
        agent: AbstractAgent[Any, Any],
        backend: Backend,
        settings: Settings,
        *,
        sign_push: SignPush | None,
        conversion: Conversion,
    ) -> None:
        self._agent = agent
        self._conversion = conversion
        self._limits = limits = settings.limits
        quotas = limits.quotas
        self._metering = metering = None if quotas is None else Metering(quotas, backend.quotas, backend.now)
        workers, push = settings.workers, settings.push
        credentials = settings.access.credentials
        vault = None if credentials is None else CredentialVault(credentials, backend.credentials, backend.now)

        def make_worker() -> Worker:
            if not conversion.has_model:
                logger.warning('%s Runs without a model fail.', NO_MODEL)
            return Worker(backend, conversion.job(backend, metering, vault), settings, metering=metering)

        self.direct = None
        """Answers messages with messages; None: all answers are tasks."""
        if (reply := settings.messages.reply) != 'task':
            job = partial(conversion.job, backend, metering)
            limit, max_wait = workers.running, limits.max_wait
            self.direct = Direct(reply, backend, job, metering=metering, limit=limit, max_wait=max_wait)
        registration, sending = (None, None) if push is None else _webhooks(backend, push, sign_push)
        entered = backend if isinstance(backend, AbstractAsyncContextManager) else nullcontext()
        stores = (lambda: entered, sending or nullcontext)
        self.hosting = Hosting(
            make_worker,
            LoopExitStack(lambda: agent, *stores),
            backend=backend,
            store=LoopExitStack(*stores),
            keep_alive=limits.keep_alive,
            drain_grace=workers.drain_grace,
            drain_delay=workers.drain_delay,
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
            extensions=Extensions(card.extensions),
            capabilities=card.capabilities,
            extended=extended,
            direct=self.direct,
            tenants=tenants,
            start=self.hosting.ensure,
            keep=self._conversion.keep or (None if guard.anonymous else keep_caller),
        )
        return Serving(
            dispatcher=dispatcher,
            versions=versions,
            body_limit=limits.body,
            value_limit=limits.values,
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
