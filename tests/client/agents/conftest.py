"""Cancellations of remote tasks take as long as a slow machine needs."""

from __future__ import annotations

import pytest

from pydantic_ai_a2a.client.agents import remote_tasks

from ...bounds import LIMIT


@pytest.fixture(autouse=True)
def unlimited_cancel_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ('FIRST_LIMIT', 'CANCEL_LIMIT'):
        monkeypatch.setattr(remote_tasks, name, LIMIT)
