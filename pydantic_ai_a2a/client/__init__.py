"""Calls remote A2A agents: cards, requests over HTTP, streams that survive cut connections.

A URL, a card or an app comes in. Tasks, messages and events go out as FastA2A's TypedDicts, or a typed error.
"""
