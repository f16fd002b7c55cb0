"""The clerk, who also takes what is said to him while he works; runs in the servers' processes."""

from __future__ import annotations

from os import environ

from pydantic_ai_a2a import Messages, to_a2a

from ..e2e.gates import ROUTES
from .durable_clerk import WORKERS, clerk

app = to_a2a(
    clerk, backend=environ['A2A_TEST_BACKEND'], routes=ROUTES, workers=WORKERS, messages=Messages(while_working='steer')
)
