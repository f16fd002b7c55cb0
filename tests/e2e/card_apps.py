"""Agents with more on their cards, and one that answers with messages. This module runs in the servers' processes."""

from __future__ import annotations

from pydantic_ai import Agent

from pydantic_ai_a2a import Access, APIKeyAuth, BearerAuth, Messages, to_a2a

TOKEN, KEY = 'the-token-of-ann-1234', 'the-key-of-bob-1234'

extended = to_a2a(
    Agent('test'),
    auth=[BearerAuth({TOKEN: 'ann'}), APIKeyAuth({KEY: 'bob'})],
    access=Access(extended_card={'description': 'More.'}),
)
tenants = to_a2a(Agent('test'), access=Access(tenants=['acme', 'umbrella']))
messages = to_a2a(Agent('test'), messages=Messages(reply='message'))
