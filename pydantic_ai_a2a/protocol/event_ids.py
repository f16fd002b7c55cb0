"""The extension by which events of gRPC streams carry their ids, after which a client resumes a stream."""

from __future__ import annotations

from fasta2a.schema import AgentExtension

__all__ = ('EVENT_IDS', 'EVENT_ID', 'EVENT_IDS_URI')

EVENT_IDS_URI = 'https://pypi.org/project/pydantic-ai-a2a/#event-ids-v1'
"""Name of the extension, and key of its data in metadata. Data with another meaning gets another URI."""
EVENT_ID = 'eventId'
"""The field of the data with the id, a decimal number as a string."""

EVENT_IDS = AgentExtension(
    uri=EVENT_IDS_URI,
    description=(
        'Over gRPC, the metadata of each event has its id. SubscribeToTask with the id as last-event-id in the '
        'metadata of the call sends the events that follow.'
    ),
)
"""Declaration of the extension on agent cards. The extension is information only: clients activate nothing."""
