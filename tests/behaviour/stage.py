"""The names of `tests/agents.py`, `tests/serving.py` and `tests/logs.py` that tests still import from here."""

from __future__ import annotations

from ..agents import GatedAgent as Stage
from ..agents import LookupAgent as Desk
from ..agents import echo_prompts as heard
from ..agents import user_prompts as prompts
from ..logs import audit_records as audited
from ..logs import log_event as told_in_log
from ..logs import loop_errors as told_to_loop
from ..serving import each_backend, serving
from ..serving import list_tasks as tasks_of
from ..serving import wait_until_ended as ended

__all__ = (
    'Desk',
    'Stage',
    'audited',
    'each_backend',
    'ended',
    'heard',
    'prompts',
    'serving',
    'tasks_of',
    'told_in_log',
    'told_to_loop',
)
