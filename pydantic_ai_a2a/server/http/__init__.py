"""HTTP: the bindings JSON-RPC and HTTP+JSON, event streams, the card, health, and limits of requests and answers.

ASGI requests come in. ASGI answers go out; no other room knows HTTP.
"""
