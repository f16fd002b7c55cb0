"""Asks for known vulnerabilities of what is installed: `python -m tests.audit`, which `make lint` runs.

It fails if there are any, and says so loudly if the service that knows them cannot be asked: there is no network in
every place that lints. With `AUDIT=required` in the environment it fails then, too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from .bounds import LIMIT

OWN = 'pydantic-ai-a2a'
COMMAND = (sys.executable, '-m', 'pip_audit', '--format', 'json', '--progress-spinner', 'off', '--timeout', '5')


def findings(report: Any) -> tuple[list[str], list[str]]:
    """The vulnerabilities of a report of pip-audit, and the packages that nobody knew anything of."""
    found = [
        f'{each["name"]} {each["version"]}: {known["id"]}, fixed in {", ".join(known["fix_versions"]) or "no version"}'
        for each in report['dependencies']
        for known in each.get('vulns', ())
    ]
    unknown = [each['name'] for each in report['dependencies'] if 'skip_reason' in each and each['name'] != OWN]
    return found, unknown


def verdict(output: str, *, required: bool) -> tuple[int, str]:
    """The exit status and what to say, for what pip-audit has written."""
    if not output:
        return int(required), 'NOT AUDITED for known vulnerabilities: the service of pip-audit cannot be reached.'
    found, unknown = findings(json.loads(output))
    if found:
        return 1, '\n'.join(['Known vulnerabilities:', *found])
    if unknown:
        some = ', '.join(unknown[:5]) + (', ...' if len(unknown) > 5 else '')
        return int(required), f'NOT AUDITED for known vulnerabilities: {len(unknown)} unknown packages ({some}).'
    return 0, 'No known vulnerabilities.'


def main() -> int:
    try:
        output = subprocess.run(COMMAND, capture_output=True, text=True, timeout=LIMIT, check=False).stdout
    except subprocess.TimeoutExpired:
        output = ''
    status, said = verdict(output, required=os.environ.get('AUDIT') == 'required')
    print(said)
    return status


if __name__ == '__main__':
    sys.exit(main())
