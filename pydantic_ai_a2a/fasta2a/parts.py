"""A user's own FastA2A storage, broker and worker: whether they fit together, and what is made of them.

Knows neither the app nor how it is hosted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from fasta2a.broker import Broker
from fasta2a.storage import Storage
from fasta2a.worker import Worker
from pydantic_ai.agent import AbstractAgent

from ..agent.dependencies import Dependencies
from ..agent.hooks import Hooks
from ..agent.options import RunOptions, check_tools, may_have_model, models_of
from ..agent.references import read_referenced
from ..agent.runner import Runner
from ..backends.memory import SqliteBackend
from ..conversion.answer_rules import AnswerRules
from ..conversion.inbound import HTTPS_ONLY, Accepts, accepts, check_types, resolve_profile
from ..conversion.outbound import OutputMapper
from ..conversion.typed_input import TypedInput
from ..ports import Backend
from ..quotas import Metering
from ..runs.agent_job import AgentJob, plain_read
from ..runs.job import Job
from ..settings import Limits, Progress, Results
from ..types import Message
from .broker import BrokeredBackend
from .job import WorkerJob
from .storage import FastA2ABackend
from .worker import AgentWorker, WorkerOutputs

__all__ = ('Conversion', 'OwnParts', 'own_parts')


@dataclass(frozen=True, slots=True)
class OwnParts:
    """What the user has brought; a worker's storage and broker among it."""

    storage: Storage[Any] | None
    broker: Broker | None
    worker: Worker[Any] | None

    @property
    def foreign(self) -> Worker[Any] | None:
        """A worker that runs tasks by itself."""
        return _foreign(self.worker)

    def backend(self, memory: SqliteBackend) -> Backend:
        """What tasks are kept in, and run through."""
        inner = memory
        if self.storage is not None:
            inner = FastA2ABackend(self.storage, memory, worker_writes=self.foreign is not None)
        return inner if self.broker is None else BrokeredBackend(inner, self.broker)


def _foreign(worker: Worker[Any] | None) -> Worker[Any] | None:
    return None if isinstance(worker, AgentWorker) and not worker.runs_itself else worker


def own_parts(
    agent: AbstractAgent[Any, Any],
    *,
    storage: Storage[Any] | None,
    broker: Broker | None,
    worker: Worker[Any] | None,
    backend_given: bool,
    options: RunOptions,
    hooks: Hooks,
    deps_factory: object,
    force_download: bool,
    url_schemes: frozenset[str],
) -> OwnParts | None:
    """The user's own parts, if there are any.

    Raises:
        TypeError: They are given with a backend, or a worker with run options.
        ValueError: The worker has another storage, broker or agent.
    """
    if storage is broker is worker is None:
        return None
    if backend_given:
        raise TypeError('storage=, broker= and worker= are what FastA2A has for a backend; give them or backend=.')
    if worker is None:
        return OwnParts(storage, broker, None)
    given_options = [name for name, value in options.items() if value is not None]
    others = {
        'deps_factory': deps_factory is not None,
        'force_download': not force_download,
        'allowed_file_url_schemes': url_schemes != HTTPS_ONLY,
    }
    if given_here := sorted([*given_options, *hooks.given, *(name for name, there in others.items() if there)]):
        raise TypeError(f'With worker=, to_a2a() takes no {", ".join(given_here)}: the worker runs as it was made.')
    given: dict[str, tuple[object, object]] = {'storage': (storage, worker.storage), 'broker': (broker, worker.broker)}
    given |= {'agent': (agent, getattr(worker, 'agent', agent))}
    if different := [name for name, (ours, its) in given.items() if ours is not None and ours is not its]:
        raise ValueError(f'The worker has another {" and ".join(different)} than to_a2a() was given.')
    return OwnParts(worker.storage, worker.broker, worker)


class Conversion:
    """How the agent's messages and results are converted, and what does its tasks.

    Args:
        agent: The agent.
        options: Given to every run.
        worker: A worker of the user's own.
        output_modes: What the user calls the agent's output on the card.
        progress: What clients see besides the answer.
        results: How answers reach clients.
        url_schemes: Schemes of the URLs that clients may send.
        force_download: Whether the files are downloaded here.
        download_time: Seconds that the files of a request to the model may take to be downloaded.
        answer_rules: What clients may answer, and which tools' arguments they are not shown.
        input_type: Type of the data that begins a task; None for whatever there is.
        dependencies: Gives each run `deps` of its own.
        hooks: What is told how runs end.
        steers: Whether messages to a running task enter its run.

    Raises:
        TypeError: They are to, and a worker of the user's own runs tasks by itself.
    """

    takes: Accepts
    outputs: OutputMapper

    def __init__(
        self,
        agent: AbstractAgent[Any, Any],
        options: RunOptions,
        worker: Worker[Any] | None,
        *,
        output_modes: Sequence[str] | None,
        progress: Progress,
        results: Results = Results(),
        url_schemes: frozenset[str] = HTTPS_ONLY,
        force_download: bool = True,
        download_time: float = Limits().download_time,
        answer_rules: AnswerRules,
        input_type: Any = None,
        steers: bool = False,
        dependencies: Dependencies | None = None,
        hooks: Hooks = Hooks(),
    ) -> None:
        self.input = None if input_type is None else TypedInput(input_type)
        self._answer_rules = answer_rules
        self._dependencies = dependencies
        self.keep = None if dependencies is None else dependencies.keep
        """What runs may want to know of a call, from its headers and caller; None if no run does."""
        self._hooks = hooks
        own = worker if isinstance(worker, AgentWorker) else None
        self._foreign = _foreign(worker)
        self._is_known = own is not None or worker is None
        if own is not None:
            options = own.options
        self.outputs = (
            OutputMapper(
                options.get('output_type') or agent.output_type, output_modes, data_as_text=results.data_as_text
            )
            if own is None
            else WorkerOutputs(own, output_modes, data_as_text=results.data_as_text)
        )
        profile = resolve_profile(models_of(agent, options))
        self.takes = accepts(profile, url_schemes, force_download=force_download) if own is None else own.accepts
        self._read = plain_read(self.takes) if own is None else own.read_one
        self._read_task = own.read if own is not None and own.reads_itself else None
        self._runner = (
            Runner(agent, options, progress, answer_rules.hidden, download_time) if self._foreign is None else None
        )
        self.has_model = not self._is_known or may_have_model(agent, options)
        """True if runs may have a model without `agent.override`."""
        if self._is_known:
            for argument, tools in answer_rules.named_tools.items():
                check_tools(agent, options, argument, tools)
        if steers and self._foreign is not None:
            raise TypeError("while_working='steer' needs an agent that to_a2a() runs: your worker= takes one message.")
        self._steers = steers
        self._streams_text = results.stream != 'whole'

    def check_content(self, message: Message) -> None:
        """Refuse a message that the agent cannot take. A worker that runs tasks by itself is not asked."""
        if self._foreign is None:
            check_types(message)
        if self.input is not None:
            self.input.check(message)
        if self._is_known and self._read_task is None:
            self._read(message)

    def check_output(self, modes: Sequence[str]) -> None:
        """Refuse a client that takes nothing of what the agent returns."""
        if self._is_known:
            self.outputs.check(modes)

    def job(self, backend: Backend, metering: Metering | None = None, *, referenced: int) -> Job:
        """What does the tasks; their messages bring along so many bytes of artifacts that they refer to."""
        if self._foreign is not None:
            return WorkerJob(self._foreign)
        assert self._runner is not None, 'there is no other worker'
        return AgentJob(
            backend,
            self._runner,
            read=self._read,
            read_task=self._read_task,
            outputs=self.outputs,
            streams_text=self._streams_text,
            metering=metering,
            answer_rules=self._answer_rules,
            steers=self._steers,
            refer=partial(read_referenced, accepts=self.takes, size=referenced),
            dependencies=self._dependencies,
            hooks=self._hooks,
        )


class LoopExitStack(AbstractAsyncContextManager[None]):
    """Several things that are entered together, once in each event loop."""

    def __init__(self, *things: AbstractAsyncContextManager[Any]) -> None:
        self._things = things
        self._stacks: dict[asyncio.AbstractEventLoop, AsyncExitStack] = {}

    async def __aenter__(self) -> None:
        async with AsyncExitStack() as stack:
            for thing in self._things:
                await stack.enter_async_context(thing)
            self._stacks[asyncio.get_running_loop()] = stack.pop_all()

    async def __aexit__(self, *error: Any) -> bool | None:
        return await self._stacks.pop(asyncio.get_running_loop()).__aexit__(*error)
