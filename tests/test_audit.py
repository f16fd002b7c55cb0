"""The audit of dependencies: what it takes for a finding, and that it is never silent about what it did not see."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .audit import verdict

CLEAN: dict[str, Any] = {'name': 'starlette', 'version': '1.0', 'vulns': []}
KNOWN: dict[str, Any] = {
    **CLEAN,
    'vulns': [{'id': 'PYSEC-1', 'fix_versions': ['1.1']}, {'id': 'PYSEC-2', 'fix_versions': []}],
}
SKIPPED = {'name': 'httpx', 'skip_reason': 'not found'}
OURS = {'name': 'pydantic-ai-a2a', 'skip_reason': 'not found'}


@pytest.mark.parametrize(
    ('dependencies', 'statuses', 'said'),
    [
        ([CLEAN, OURS], (0, 0), 'No known vulnerabilities.'),
        (
            [KNOWN, SKIPPED],
            (1, 1),
            'Known vulnerabilities:\nstarlette 1.0: PYSEC-1, fixed in 1.1\nstarlette 1.0: PYSEC-2, fixed in no version',
        ),
        (
            [CLEAN, SKIPPED, OURS],
            (0, 1),
            'NOT AUDITED for known vulnerabilities: 1 unknown packages (httpx).',
        ),
        (
            None,
            (0, 1),
            'NOT AUDITED for known vulnerabilities: the service of pip-audit cannot be reached.',
        ),
    ],
    ids=['clean', 'known', 'unknown', 'unreachable'],
)
def test_what_an_audit_comes_to(dependencies: list[object] | None, statuses: tuple[int, int], said: str) -> None:
    output = '' if dependencies is None else json.dumps({'dependencies': dependencies})
    outcomes = [verdict(output, required=required) for required in (False, True)]
    assert outcomes == [(status, said) for status in statuses]
