"""The command `doctor`: examines a remote agent, and says what to change."""

from __future__ import annotations

import json
from contextlib import aclosing
from dataclasses import asdict
from textwrap import fill

import click

from ..client.doctor.examination import examine
from ..client.doctor.findings import Finding
from .async_commands import awaited
from .remote_agent import INDENT, Remote, agent_options
from .terminal import echo, echo_json


@click.command()
@agent_options
@click.option('-v', '--verbose', is_flag=True, help='Show each step, and each hint as often as it occurs.')
@click.option('--json', 'is_json', is_flag=True, help='Write each step as a line of JSON.')
@awaited
async def doctor(*, remote: Remote, verbose: bool, is_json: bool) -> int:
    """Examine an agent, and say what to change.

    URL is the agent or its card. The command sends harmless text, and cancels tasks that still run. The exit code is 1
    if there is a fault.
    """
    has_fault, summary = False, _Summary()
    steps = examine(remote.url, remote.connections(), remote.trusted_origins)
    async with aclosing(steps):
        async for finding in steps:
            has_fault |= finding.level == 'fault'
            if is_json:
                echo_json(json.dumps(asdict(finding)))
            elif verbose:
                echo(_finding_lines(finding))
            else:
                summary.add(finding)
    summary.write()
    return int(has_fault)


class _Summary:
    """Writes the cards and interfaces that are examined, what to change once, and the other steps by name only."""

    def __init__(self) -> None:
        self._names: dict[str, list[str]] = {}
        """The steps since the last written line, by level."""
        self._written: set[tuple[str, str]] = set()

    def add(self, finding: Finding) -> None:
        if finding.level in ('ok', 'not checked') and finding.step not in ('card', 'interface'):
            self._names.setdefault(finding.level, []).append(finding.step)
        elif (finding.step, finding.text) not in self._written:
            self._written.add((finding.step, finding.text))
            self.write()
            echo(_finding_lines(finding))

    def write(self) -> None:
        for level, names in self._names.items():
            echo(_wrapped(level, ', '.join(names)))
        self._names.clear()


def _finding_lines(finding: Finding) -> str:
    section = f' (§{finding.section})' if finding.section else ''
    lines = [_wrapped(finding.level, f'{finding.step}: {finding.text}{section}')]
    if finding.level in ('hint', 'warning', 'fault'):
        details = (('sent', finding.sent), ('came', finding.came), ('change', finding.advice))
        lines += [_wrapped('', f'{name}: {text}') for name, text in details if text]
    return '\n'.join(lines)


def _wrapped(head: str, text: str) -> str:
    first, rest = f'{head:{INDENT}}', ' ' * INDENT
    return fill(text, 80, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False)
