"""The composition root: `to_a2a` checks its options, makes the parts of an app of them, and puts the parts together.

An agent and options come in. An ASGI app goes out, which can be mounted, served or run; no other room knows all rooms.
"""
