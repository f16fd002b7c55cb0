"""What tests read in the log, in the audit log, and in the errors of the event loop."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
from collections.abc import Generator
from contextlib import contextmanager
from threading import Event
from typing import Any

import pytest

from pydantic_ai_a2a.server.audit import LOGGER


def audit_records(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The records of the audit log without their times. The line of each record is the same as JSON."""
    records = [record for record in caplog.records if record.name == LOGGER]
    facts: list[dict[str, Any]] = [vars(record)['audit'] for record in records]
    assert [json.loads(record.getMessage()) for record in records] == facts
    return [{name: value for name, value in fact.items() if name != 'time'} for fact in facts]


@contextmanager
def log_event(text: str) -> Generator[Event]:
    """An event that is set once the package logs a line with this text, in any thread."""
    logged = Event()

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if text in record.getMessage():
                logged.set()

    handler = Handler()
    logging.getLogger('pydantic_ai_a2a').addHandler(handler)
    try:
        yield logged
    finally:
        logging.getLogger('pydantic_ai_a2a').removeHandler(handler)


@contextmanager
def loop_errors() -> Generator[list[str]]:
    """The errors that reach the event loop until the end of the block, such as of a task that nobody awaits."""
    loop, errors = asyncio.get_running_loop(), list[str]()
    before = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: errors.append(context['message']))
    try:
        yield errors
    finally:
        gc.collect()
        loop.set_exception_handler(before)
