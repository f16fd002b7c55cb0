"""The conversion of messages and results for one app, and the job for the app's tasks.

The composition root makes one `Conversion` of the options. The service checks messages by it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

from pydantic_ai.agent import AbstractAgent

from ..agent.dependencies import Dependencies, Hooks
from ..agent.downloads import read_referenced
from ..agent.options import (
    RunOptions,
    check_partial_data,
    check_tools,
    known_tools,
    may_have_model,
    may_have_own_output,
    models_of,
)
from ..agent.runner import Runner
from ..auth.credentials import CredentialVault
from ..card import CardSchemas
from ..conversion import schemas
from ..conversion.inbound import Accepts, accepts, check_parts, check_types, resolve_profile
from ..conversion.outbound import OutputMapper
from ..conversion.schemas import MAX_BYTES, MAX_DEPTH, ClientTools, TypedInput, is_small
from ..errors import UnsupportedOperationError
from ..fasta2a.parts import agent_worker, foreign_worker
from ..quotas import Metering
from ..runs.agent_job import AgentJob, Job, plain_read
from ..settings import Approvals, Settings
from ..store.ports import Backend
from ..types import Message

__all__ = ('Conversion',)

logger = logging.getLogger('pydantic_ai_a2a')


class Conversion:
    """The conversion of an agent's messages and results, and the job that does its tasks.

    Args:
        agent: The agent.
        settings: Settings of the app.
        options: Options of every run.
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
        output_modes: Sequence[str] | None,
        dependencies: Dependencies | None = None,
        hooks: Hooks = Hooks(),
    ) -> None:
        messages, worker = settings.messages, settings.workers.worker
        self._settings, self._agent = settings, agent
        self.input = None if messages.input_type is None else TypedInput(messages.input_type)
        self._dependencies = dependencies
        self.keep = None if dependencies is None else dependencies.keep
        """Keeps the parts of a call that runs may ask for; None if no run asks for any."""
        self._hooks = hooks
        own = agent_worker(worker)
        self._foreign = foreign_worker(worker)
        self._is_known = own is not None or worker is None
        if own is not None:
            options = own.options
        as_text = settings.results.data_as_text
        self.outputs = (
            OutputMapper(options.get('output_type') or agent.output_type, output_modes, data_as_text=as_text)
            if own is None
            else own.outputs_for(output_modes, data_as_text=as_text)
        )
        self.client_tools = (
            ClientTools(settings.limits.client_tools, partial(_tools_of, agent, options, settings.approvals))
            if messages.client_tools
            else None
        )
        """Reads the tools of clients; None if clients cannot declare tools."""
        profile = resolve_profile(models_of(agent, options))
        self.takes = (
            accepts(profile, messages.allowed_file_url_schemes, force_download=messages.force_download)
            if own is None
            else own.accepts
        )
        self._read = plain_read(self.takes) if own is None else own.read_one
        self._read_task = own.read if own is not None and own.reads_itself else None
        self._runner = None if self._foreign is not None else _runner(agent, options, settings, self.outputs, hooks)
        self.schemas = CardSchemas(
            input=None if self.input is None else _published(self.input.schema, 'Messages.input_type'),
            output=_published(self.outputs.schema, 'output_type') if self._is_known else None,
        )
        """JSON Schemas for the card."""
        self.has_model = not self._is_known or may_have_model(agent, options)
        """True if runs may have a model without `agent.override`."""
        if self._is_known:
            for argument, tools in settings.approvals.named_tools.items():
                check_tools(agent, options, argument, tools)
            progress = settings.results.progress
            if progress.partial_data and not progress.partial_functions:
                check_partial_data(agent, options)

    def check_content(self, message: Message) -> None:
        """Refuse a message outside the agent's media types or input type. A custom worker is not asked."""
        if self._foreign is None:
            check_types(message)
        if self.input is not None:
            self.input.check(message)
        if self._is_known and self._read_task is None:
            check_parts(message, self.takes)

    def check_output(self, modes: Sequence[str], schema: dict[str, Any] | None) -> None:
        """Refuse a client that accepts no output mode of the agent, or of the data that fits the client's schema."""
        if schema is not None:
            OutputMapper(dict[str, Any]).check(modes)
        elif self._is_known:
            self.outputs.check(modes)

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

    def job(self, backend: Backend, metering: Metering | None = None, vault: CredentialVault | None = None) -> Job:
        """Return the job that runs the tasks."""
        if self._foreign is not None:
            from ..fasta2a.worker import WorkerJob  # noqa: PLC0415 - apps without an own worker need none

            return WorkerJob(self._foreign)
        assert self._runner is not None, 'there is no other worker'
        return AgentJob(
            backend,
            self._runner,
            read=self._read,
            read_task=self._read_task,
            outputs=self.outputs,
            settings=self._settings,
            metering=metering,
            refer=partial(read_referenced, accepts=self.takes, size=self._settings.limits.referenced),
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
