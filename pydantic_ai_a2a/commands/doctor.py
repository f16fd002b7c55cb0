"""The command `doctor`."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import asdict
from textwrap import fill

import click

from ..doctor.examination import examine
from ..doctor.probe import Finding
from .calling import Remote, agent_options
from .screen import as_json, safe

__all__ = ('doctor',)

_INDENT = 12


@click.command()
@agent_options
@click.option('--json', 'is_json', is_flag=True, help='Write each step as a line of JSON.')
def doctor(*, remote: Remote, is_json: bool) -> int:
    """Examine an agent, and say what to change.

    URL is the agent or its card. The command sends harmless text, and cancels tasks that still run. The exit code is 1
    if there is a fault.
    """
    return asyncio.run(_examine(remote, is_json=is_json))


async def _examine(remote: Remote, *, is_json: bool) -> int:
    has_fault = False
    steps = examine(remote.url, remote.connections())
    async with aclosing(steps):
        async for finding in steps:
            has_fault |= finding.level == 'fault'
            click.echo(as_json(asdict(finding)) if is_json else _finding_lines(finding))
    return int(has_fault)


def _finding_lines(finding: Finding) -> str:
    section = f' (§{finding.section})' if finding.section else ''
    lines = [_wrapped(finding.level, f'{finding.step}: {finding.text}{section}')]
    if finding.level in ('hint', 'warning', 'fault'):
        details = (('sent', finding.sent), ('came', finding.came), ('change', finding.advice))
        lines += [_wrapped('', f'{name}: {text}') for name, text in details if text]
    return '\n'.join(lines)


def _wrapped(head: str, text: str) -> str:
    first, rest = f'{head:{_INDENT}}', ' ' * _INDENT
    return fill(
        safe(text), 80, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )
