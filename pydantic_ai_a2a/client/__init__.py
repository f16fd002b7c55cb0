"""Calls remote A2A agents: cards, requests over HTTP, streams that survive cut connections.

A URL, a card or an app comes in. Results with text, data, files and questions go out, events, or a typed error.
"""
