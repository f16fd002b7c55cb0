"""The extension by which an agent declares that it runs a repeated message only once."""

from __future__ import annotations

from fasta2a.schema import AgentExtension

__all__ = ('REPLAY', 'SHORTEST_ID', 'REPLAY_URI')

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
