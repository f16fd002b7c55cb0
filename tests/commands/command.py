"""Runs commands in this process, and puts into the store what they work on."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest
from pydantic_ai.usage import RunUsage

from pydantic_ai_a2a.app.stores import open_store
from pydantic_ai_a2a.commands.cli import main
from pydantic_ai_a2a.store.ports import DEAD_LETTER, Backend

from ..suites.values import AT, OVER, claim_one, ending, message, run, submit, turn

STORE = ('--backend', 'sqlite:///agent.db', '--namespace', 'joker')
TOO_OFTEN = b'{"messageId":"why","parts":[{"text":"too often"}],"metadata":{"correlationId":"correlation"}}'


class Outcome(NamedTuple):
    code: object
    out: str
    err: str

    @property
    def why(self) -> tuple[object, str]:
        """The exit code, and what the error is."""
        return self.code, re.split('[eE]rror: ', self.err.strip().splitlines()[-1], maxsplit=1)[1]

    @property
    def lines(self) -> list[Any]:
        """What was written as JSON Lines."""
        assert self.code == 0, self.err
        return [json.loads(line) for line in self.out.splitlines()]


def command(capsys: pytest.CaptureFixture[str], *arguments: str) -> Outcome:
    """How a command ends."""
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    written = capsys.readouterr()
    return Outcome(exit_.value.code, written.out, written.err)


def in_store(
    fill: Callable[[Backend], Awaitable[object]], url: str = 'sqlite:///agent.db', namespace: str = 'joker'
) -> None:
    """Do something with the store of the app, or another one."""

    async def do() -> None:
        backend = open_store(url, namespace)
        try:
            await fill(backend)
        finally:
            backend.close()

    asyncio.run(do())


async def die(backend: Backend, task_id: str, *, context: str = 'c', owner: str = '/ann', at: int = AT) -> None:
    """A dead letter."""
    await submit(backend, message(f'do {task_id}', new=task_id, context=context, owner=owner, at=at))
    for n in range(2):
        await claim_one(backend, task_id, f'holder {n}', at=at, lease=OVER)
    end = at + 60_000
    claimed = await claim_one(backend, task_id, 'the last', at=end)
    await backend.queue.finish(
        claimed, ending(claimed, 'failed', at=end, status_message=TOO_OFTEN, failure=DEAD_LETTER)
    )


async def finish(backend: Backend, task_id: str, *, context: str = 'c', owner: str = '/ann') -> None:
    """A task that is completed, with a turn in its context."""
    await submit(backend, message(f'do {task_id}', new=task_id, context=context, owner=owner))
    artifact = b'{"artifactId":"a","parts":[{"text":"the result"}]}'
    await run(
        backend,
        task_id,
        messages=turn(f'do {task_id}', 'the result'),
        artifacts=[('a', artifact)],
        usage=RunUsage(requests=1),
    )
