"""The extension of A2A for the data part in the status message of a waiting task, and for the data that answers it."""

from __future__ import annotations

from ...types.a2a_objects import AgentExtension

PENDING_CALLS_URI = 'https://pypi.org/project/pydantic-ai-a2a/#pending-calls-v1'
"""Name of the extension, and key of its data in the metadata of messages. Data with another meaning gets another
URI."""

PENDING_CALLS = AgentExtension(
    uri=PENDING_CALLS_URI,
    description='A task that waits for its client lists the answers it needs in a data part, with their JSON Schema.',
)
"""Declaration of the extension on agent cards."""

MEDIA_TYPE = 'application/vnd.pydantic-ai.pending-calls+json'
"""Media type of the data part with the pending calls, also in `metadata` for versions without media types."""

KEY = 'callAnswers'
"""The one member of a data part that answers calls."""
