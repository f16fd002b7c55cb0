"""The extensions of A2A that this package defines: their names, and their declarations on agent cards.

- Event ids: events of gRPC streams carry their ids, after which a client resumes a stream.
- Message replay: a repeated message is run only once.
- Live text: the text of the answer while the model writes it.
- Run metadata, whose data `run_metadata` writes: model and usage of a run, in the metadata of its task.
"""

from __future__ import annotations

from pydantic_core import from_json

from ...types.a2a_objects import AgentExtension

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

REPLAY_URI = 'https://pypi.org/project/pydantic-ai-a2a/#message-replay-v1'
"""Name of the extension."""
SHORTEST_ID = 16
"""Fewest characters of an anonymous caller's `messageId` by which the message is recognised: another caller may use the
same short id."""

REPLAY = AgentExtension(
    uri=REPLAY_URI,
    description=(
        'A message that is sent again with the same messageId, of at least 16 characters, and the same content is '
        'answered with its first task.'
    ),
)
"""Declaration of the extension on agent cards. The extension is information only: clients activate nothing."""

LIVE_TEXT_URI = 'https://pypi.org/project/pydantic-ai-a2a/#live-text-v1'
"""Name of the extension."""
LIVE_TEXT = AgentExtension(
    uri=LIVE_TEXT_URI,
    description=(
        'Activate the extension, in A2A-Extensions, for streams with the text of the answer while the model writes it:'
        ' other streams may have the text in one update, at its end. An update without append begins the text, updates'
        ' with append continue it, and the last one is empty.'
    ),
)
"""Declaration of the extension on agent cards."""

LIVE = 'live'
"""The field of a stored request that wants live text before there is a reader."""
_LIVE = b'"live":true'

RUN_METADATA_URI = 'https://pypi.org/project/pydantic-ai-a2a/#run-metadata-v1'
"""Name of the extension, and key of its data in metadata. Data with another meaning gets another URI."""

RUN_METADATA = AgentExtension(
    uri=RUN_METADATA_URI,
    description='Tasks of requests that activate the extension have the run id, the model and the usage in'
    ' their metadata.',
)
"""Declaration of the extension on agent cards."""


def wants_live(request: bytes | None) -> bool:
    """Return True if the message of a run has activated live text for readers that follow later."""
    return request is not None and _LIVE in request and LIVE in from_json(request)
