"""The names that Temporal stores. Servers, workers and stored workflows of other versions know them: they stay."""

from __future__ import annotations

from temporalio.common import SearchAttributeKey

NAME = 'pydantic_ai_a2a'
WORKFLOW = f'{NAME}.run'
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
