"""The extension of A2A for the data part in the status message of a waiting task, and for the data that answers it."""

from __future__ import annotations

from ...types.a2a_objects import AgentExtension, Message

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

QUESTION = 'question'
"""The member of a message's metadata, in the extension's data, with the id of the status message that it answers."""


def with_question(message: Message, question: str | None) -> Message:
    """Return a message that names the status message that it answers; without an id, the message as it is."""
    if not question:
        return message
    return {**message, 'metadata': {**message.get('metadata', {}), PENDING_CALLS_URI: {QUESTION: question}}}


def without_question(message: Message) -> Message:
    """Return a message for an agent without the extension."""
    metadata = message.get('metadata', {})
    if PENDING_CALLS_URI not in metadata:
        return message
    rest = {name: value for name, value in metadata.items() if name != PENDING_CALLS_URI}
    plain: Message = {**message, 'metadata': rest}
    if not rest:
        del plain['metadata']
    return plain
