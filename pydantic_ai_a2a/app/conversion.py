"""How an app converts messages and results, and what does its tasks: the agent, or a worker of the user.

The composition root makes one `Conversion` of the options. The service checks messages by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from fasta2a.worker import Worker
from pydantic_ai.agent import AbstractAgent

from ..agent.dependencies import Dependencies
from ..agent.hooks import Hooks
from ..agent.options import RunOptions, check_tools, may_have_model, models_of
from ..agent.references import read_referenced
from ..agent.runner import Runner
from ..conversion.answer_rules import AnswerRules
from ..conversion.inbound import HTTPS_ONLY, Accepts, accepts, check_parts, check_types, resolve_profile
from ..conversion.outbound import OutputMapper
from ..conversion.typed_input import TypedInput
from ..fasta2a.job import WorkerJob
from ..fasta2a.parts import foreign_worker
from ..fasta2a.worker import AgentWorker, WorkerOutputs
from ..ports import Backend
from ..quotas import Metering
from ..runs.agent_job import AgentJob, plain_read
from ..runs.job import Job
from ..settings import Limits, Progress, Results
from ..types import Message

__all__ = ('Conversion',)


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
        self._foreign = foreign_worker(worker)
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
            Runner(agent, options, progress, answer_rules.hidden, download_time, outputs=self.outputs)
            if self._foreign is None
            else None
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
            check_parts(message, self.takes)

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
