"""The agent as the options configure it: the conversion of its messages and results, and the job for its tasks.

`to_a2a` makes one `ConfiguredAgent` of the options. The service checks messages by it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pydantic_ai.agent import AbstractAgent

from ...errors import UnsupportedOperationError
from ...settings.app_settings import Settings
from ...settings.approvals import Approvals
from ...types.a2a_objects import Message
from ...wire.extensions import client_schema
from ...wire.extensions.card_schemas import CardSchemas
from ...wire.extensions.client_tools import ClientTools
from ...wire.parts.media_types import media_range
from ...wire.schemas.foreign_schemas import MAX_BYTES, MAX_DEPTH, is_small
from ..agent.agent_inspection import lacks_deps, may_have_model, may_have_own_output, models_of
from ..agent.dependencies import Dependencies
from ..agent.hooks import Hooks
from ..agent.known_tools import check_tools, known_names
from ..agent.mcp_connections import MCPConnections
from ..agent.partial_outputs import check_partial_data
from ..agent.playground_steps import Trace
from ..agent.referenced_tasks import read_referenced
from ..agent.run_options import RunOptions
from ..agent.runner import Runner, RunsAgent
from ..auth.credential_vault import CredentialVault
from ..conversion.accepted_content import Accepts
from ..conversion.model_profiles import accepts, resolve_audio_types, resolve_profile
from ..conversion.output_mapper import OutputMapper
from ..conversion.typed_input import TypedInput
from ..conversion.user_prompts import check_parts, check_types
from ..fasta2a.user_parts import agent_worker, foreign_worker
from ..quotas import Metering
from ..runs.agent_job import AgentJob
from ..runs.job import Job
from ..runs.messages_for_model import plain_read
from ..store.ports import Backend

logger = logging.getLogger('pydantic_ai_a2a')


class ConfiguredAgent:
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
        self.connections = MCPConnections(agent) if self.runner is None else self.runner.connections
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
        if client_schema.CLIENT_SCHEMA_URI not in metadata:
            return None
        if not self.takes_schemas:
            raise UnsupportedOperationError(
                'The agent takes no JSON Schema of the client for its answer: send the message without the metadata of'
                f' {client_schema.CLIENT_SCHEMA_URI}.'
            )
        return client_schema.client_schema(metadata)

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
    return known_names(agent, options).union(*approvals.named_tools.values())


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
