"""What a task waits for, and what its run goes on with."""

from __future__ import annotations

import pytest

from pydantic_ai_a2a.conversion.pending import Pending, PendingCall, results


def test_nothing_is_approved_that_nobody_has_answered() -> None:
    call = PendingCall(id='c1', kind='approval', tool='delete', text='May I?')
    with pytest.raises(KeyError):
        results(Pending(calls=[call]))
