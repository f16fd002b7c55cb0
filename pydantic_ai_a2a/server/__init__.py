"""The server: serves an agent over A2A.

An agent and its options come in, and requests of clients. An ASGI app goes out, and the answers. `app` puts the rooms
together, `http` and `grpc` take the requests, and `runs` and `agent` do the tasks.
"""
