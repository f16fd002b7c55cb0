"""What serves one agent, joined: its service, its workers and where they are hosted, over one backend."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import Any

from pydantic_ai.agent import AbstractAgent

from .bindings.sse import OpenStreams
from .card import CardFacts
from .conversion.answers import PlainText
from .hosting import Hosting
from .own_parts import Conversion, Held
from .ports import Backend
from .push.sending import webhooks
from .quotas import Metering
from .service import Service
from .settings import Limits, Push, Retention, Workers
from .worker import Worker, now_ms

__all__ = ('Assembly',)


class Assembly:
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
        """What the agent tells for its card; the modes are those given, else the agent's own."""
        description = self._agent.description
        typed = self._conversion.input
        return CardFacts(
            name=self._agent.name,
            description=description if isinstance(description, str) else None,
            input_modes=input_modes or (self._conversion.takes.input_modes if typed is None else ['application/json']),
            input_schema=None if typed is None else typed.schema,
            output_modes=output_modes or self._conversion.outputs.modes,
        )
