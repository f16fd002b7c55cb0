"""The events of a run in the stream of its workflow, for the server of its task."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter
from pydantic_ai.messages import AgentStreamEvent
from pydantic_core import from_json, to_json
from temporalio import activity
from temporalio.contrib.workflow_streams import WorkflowStreamClient

from ..server.runs.engine import EngineEvent
from ..types.run_events import Note, ToolArtifact
from ..wire.protocol import stored_values
from .temporal_names import NOTES_TOPIC

_EVENT: TypeAdapter[AgentStreamEvent] = TypeAdapter(AgentStreamEvent)


def dump_note(event: Note | ToolArtifact) -> bytes:
    """Write a note or an artifact for the stream of a workflow."""
    return to_json(event) if isinstance(event, Note) else stored_values.dump_artifact(event.artifact)


def event_of(topic: str, body: bytes) -> EngineEvent | None:
    """Return an event of a workflow's stream; None for the result of the agent, which the workflow returns, too."""
    if topic == NOTES_TOPIC:
        if body.startswith(b'['):
            return Note(*from_json(body)[: len(Note._fields)])
        return ToolArtifact(stored_values.load_artifact(body))
    return None if from_json(body)['event_kind'] == 'agent_run_result' else _EVENT.validate_json(body)


async def publish(key: str, event: Any) -> None:
    """Publish a note or an artifact of a tool. Return once the workflow has it: it outlives the server."""
    async with WorkflowStreamClient.create(activity.client(), key) as stream:
        stream.topic(NOTES_TOPIC).publish(dump_note(event))
