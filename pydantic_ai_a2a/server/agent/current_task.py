"""`a2a(ctx)`: the task of a run, for the tools and hooks of its agent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol, TypeVar, overload

from ...types.callers import ANONYMOUS, Caller
from ...types.run_events import Note, ToolArtifact
from ..conversion.artifacts import Artifacts
from ..conversion.chosen_states import NoCredential
from ..conversion.output_mapper import OutputMapper
from ..conversion.output_modes import OutputModes
from ..conversion.typed_input import ValidatedInput, input_of
from ..store.ports import Claim
from .dependencies import caller_of

InputT = TypeVar('InputT')

running: ContextVar[Running | None] = ContextVar('running', default=None)
"""The run of the current context; None outside of runs."""


class Writer(Protocol):
    """Stores and publishes events of a run; a `Recorder` is a writer."""

    async def write(self, event: Note | ToolArtifact) -> None:
        """Store and publish an event."""


class Writes(NamedTuple):
    """A writer for code inside of a workflow."""

    write: Callable[[Note | ToolArtifact], Awaitable[None]]


class Running(NamedTuple):
    """The run that the current asyncio task performs."""

    claim: Claim
    writer: Writer
    outputs: OutputMapper
    accepted: Callable[[], OutputModes]
    """Returns the output modes that the client accepts."""
    credential: Callable[[], Awaitable[str | None]] | None = None
    """Reads the valid credential of the caller; None without `Access.credentials`."""
    validated: ValidatedInput | None = None
    """The data that has begun the task; None without `Messages.input_type`."""


class HasMetadata(Protocol):
    """A `RunContext`, an `AgentRunResult` or a `RunCancelled`."""

    @property
    def metadata(self) -> dict[str, Any] | None:
        """Metadata of the run."""
        ...


def a2a(ctx: HasMetadata) -> CurrentTask:
    """Return the A2A task of a run, for tools, output functions, validators and hooks.

    Args:
        ctx: The `RunContext` of a tool, the `AgentRunResult` of `on_complete`, or the `RunCancelled` of `on_cancel`.

    Returns:
        The task. Outside of A2A, such as in a test that calls `agent.run`, the task has no id and an anonymous caller,
        and `status` and `artifact` do nothing.
    """
    current, info = running.get(), (ctx.metadata or {}).get('a2a')
    # A tool may run another agent, whose runs belong to no task.
    if current is None or info is None or info['task_id'] != current.claim.header.id:
        return CurrentTask(None)
    return CurrentTask(current, getattr(ctx, 'tool_call_id', None))


def tool_artifact_prefix(claim: Claim) -> str:
    """Return the beginning of the ids of all artifacts from tools of a turn."""
    return f'{claim.header.id}.{claim.turn}.tool.'


class CurrentTask:
    """The task of a run. Returned by `a2a`.

    Args:
        current: The run; None outside of A2A.
        tool_call_id: Id of the tool call; None outside of tools.
    """

    def __init__(self, current: Running | None, tool_call_id: str | None = None) -> None:
        self._current = current
        self._tool_call_id = tool_call_id

    @property
    def task_id(self) -> str:
        """Id of the task; empty outside of A2A."""
        return '' if self._current is None else self._current.claim.header.id

    @property
    def context_id(self) -> str:
        """Id of the conversation; empty outside of A2A."""
        return '' if self._current is None else self._current.claim.header.context_id

    @property
    def caller(self) -> Caller:
        """Sender of the message that began the run, with scopes and claims. Anonymous outside of A2A."""
        return ANONYMOUS if self._current is None else caller_of(self._current.claim)

    @overload
    def input(self, input_type: type[InputT]) -> InputT: ...
    @overload
    def input(self, input_type: Any) -> Any: ...
    def input(self, input_type: Any) -> Any:
        """Return the validated data that has begun the task: the same object for all tools and hooks of a run.

        Args:
            input_type: The type in `Messages.input_type`.

        Raises:
            NoInput: The task has no such data, or `Messages.input_type` is another type.
        """
        return input_of(None if self._current is None else self._current.validated, input_type)

    async def credential(self) -> str:
        """Return the credential that `Credentials.exchange` has returned for the message that began the run.

        Raises:
            NoCredential: There is no credential, or it has expired. If the tool does not catch the error, the task
                waits in `auth-required`, and the next message of the caller brings a new credential.
        """
        read = None if self._current is None else self._current.credential
        value = None if read is None else await read()
        if value is None:
            raise NoCredential
        return value

    async def status(self, text: str) -> None:
        """Show a text to the client as the status message of the working task (§4.1.2), until the next status.

        The text is stored, and watching clients get the text as an event.

        Args:
            text: The text. Clients see the text, so the text must not hold secrets.

        Raises:
            LeaseLost: The task has ended, or has moved to another process.
        """
        if self._current is not None:
            await self._current.writer.write(Note(text))

    async def artifact(self, value: Any, *, name: str, key: str | None = None) -> None:
        """Add an artifact to the task (§4.1.7) before the answer. Watching clients get the artifact as an event.

        Args:
            value: A string, a file (`BinaryContent`, `ImageUrl` and the like), a list of files, or any value for
                Pydantic's JSON.
            name: Name of the artifact.
            key: Names the artifact within the turn: a later artifact with the same key replaces the artifact. Default:
                the id of the tool call and the name. After a crash, the run may repeat a tool call.

        Raises:
            UnserializableOutput: The value cannot be written as JSON.
            UnacceptableOutput: The client accepts nothing of the value.
            LeaseLost: The task has ended, or has moved to another process.
        """
        current = self._current
        if current is None:
            return
        key = f'{self._tool_call_id or "run"}.{name}' if key is None else key
        [artifact] = current.outputs.artifacts(
            Artifacts({name: value}),
            artifact_id=tool_artifact_prefix(current.claim) + key,
            accepted=current.accepted(),
        )
        await current.writer.write(ToolArtifact(artifact))
