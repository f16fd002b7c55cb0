from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from pydantic_ai_a2a import Limits, Retention, Workers


@pytest.mark.parametrize(
    ('kind', 'values', 'problem'),
    [
        (Limits, {'body': 0}, 'Limits.body must be positive, not 0'),
        (Limits, {'max_wait': -1}, 'Limits.max_wait must be positive, not -1'),
        (Retention, {'events': timedelta(0)}, 'Retention.events must be positive, not 0.0'),
        (Workers, {'running': -3}, 'Workers.running must be positive, not -3'),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_by_name(kind: Any, values: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        kind(**values)


def test_none_is_no_limit_where_it_is_allowed() -> None:
    assert Limits().max_wait is None
