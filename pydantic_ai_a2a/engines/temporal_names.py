"""The names that Temporal stores. Servers, workers and stored workflows of other versions know them: they stay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from temporalio.common import SearchAttributeKey

from ..server.conversion.chosen_states import AuthRequired, InputRequired, Rejected
from ..server.runs.workflow_run import Canceled

NAME = 'pydantic_ai_a2a'
WORKFLOW = f'{NAME}.run'
CANCEL_SIGNAL = 'cancel'
FAILED, REJECTED = 'EngineFailure', 'Rejected'
"""Types of failures: of a run that has failed, and of an activity that has rejected the task."""
STATES: Mapping[str, type[Any]] = {
    'InputRequired': InputRequired,
    'AuthRequired': AuthRequired,
    'Rejected': Rejected,
    'Canceled': Canceled,
}
"""The ends of a run without an answer, by the names in the result of a workflow."""
NOTES_TOPIC = f'{NAME}.notes'
"""Topic of the workflow's stream with notes and artifacts."""
POLL_QUERY = '__temporal_workflow_stream_poll'
"""Query of Temporal for the events of the stream from an offset on."""
TASK_ATTRIBUTE, CONTEXT_ATTRIBUTE = map(SearchAttributeKey.for_keyword, ('a2aTask', 'a2aContext'))
AGENT_ACTIVITIES = 'agent__'
"""Beginning of the names of Pydantic AI's activities."""


def task_of(key: str) -> str:
    """Return the id of the task of a workflow."""
    return key.partition('.')[0]
