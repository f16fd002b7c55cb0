"""What is sent, and what goes wrong when: all of it follows from one number. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

__all__ = ('Cancel', 'Fault', 'Plan', 'Turn')

Mode = Literal['blocking', 'streaming', 'at once']
Cancel = Literal['queued', 'running']
_MODES: Sequence[Mode] = ('blocking', 'streaming', 'at once', 'at once', 'at once')


@dataclass(frozen=True)
class Turn:
    """A message of a client."""

    context: str
    number: int
    steps: int
    mode: Mode = 'at once'
    """How it is sent: `at once` does not wait for its end, so that the next message of the context waits behind it."""
    cancel: Cancel | None = None
    twice: bool = False
    """Whether it is sent to two servers at the same time."""

    @property
    def name(self) -> str:
        return f'{self.context}/{self.number}'


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong."""

    at: int
    """How many rows the ledger has then."""
    kind: str
    """A method of `Faults`."""
    prey: Turn
    """Sent when it begins, in a context of its own, and again with the next number if it came too late to hit it."""


@dataclass(frozen=True)
class Plan:
    """A run."""

    seed: int
    contexts: Sequence[Sequence[Turn]]
    faults: Sequence[Fault]

    @classmethod
    def of(cls, seed: int, *, tasks: int, contexts: int, faults: Sequence[str]) -> Plan:
        """So many tasks in so many contexts, and these faults, spread evenly over the work but for its end."""
        random = Random(seed)
        turns = [_turn(random, f'c{n % contexts}', n // contexts + 1) for n in range(tasks)]
        rows = sum(turn.steps + 1 for turn in turns if turn.cancel is None)
        order = random.sample(faults, len(faults))
        spread = [
            Fault(int((n + random.random()) * rows * 0.8 / len(order)) + 1, kind, Turn(f'f{n}', 1, 3, 'streaming'))
            for n, kind in enumerate(order)
        ]
        return cls(seed, [turns[n::contexts] for n in range(contexts)], spread)

    @property
    def conversations(self) -> list[Sequence[Turn]]:
        """All that is sent while things go wrong: the contexts', and what the faults bring."""
        return [*self.contexts, *([fault.prey] for fault in self.faults)]


def _turn(random: Random, context: str, number: int) -> Turn:
    cancel: Cancel | None = random.choice(('queued', 'running')) if random.random() < 0.1 else None
    return Turn(
        context,
        number,
        random.randint(1, 4),
        random.choice(_MODES) if cancel is None else 'at once',
        cancel,
        random.random() < 0.15,
    )
