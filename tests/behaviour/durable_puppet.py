"""An agent that does what its user says, over a file; runs in the servers' processes."""

from __future__ import annotations

from os import environ

from pydantic_ai_a2a import Limits, to_a2a

from ..e2e.apps import ROUTES, puppet
from ..fixed import fixed
from .durable_clerk import RETENTION, WORKERS

LIMITS = fixed(Limits, cancel_grace=float(environ['A2A_TEST_CANCEL_GRACE']))

app = to_a2a(
    puppet,
    backend=environ['A2A_TEST_BACKEND'],
    routes=ROUTES,
    workers=WORKERS,
    limits=LIMITS,
    retention=RETENTION,
)
