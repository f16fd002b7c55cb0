"""What is known after a run of chaos: what was sent, written in the ledger, read, and stored. Plain values; no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple
from zlib import crc32

__all__ = (
    'ENDED',
    'AnswerWord',
    'Event',
    'Facts',
    'FinalTask',
    'LedgerRow',
    'ObservedState',
    'Outage',
    'ReaderConnection',
    'Recovery',
    'SentMessage',
    'is_logged',
)

ENDED = frozenset({'COMPLETED', 'FAILED', 'CANCELED', 'REJECTED'})


def is_logged(task_id: str) -> bool:
    """Whether the log of a task begins with its message. The end of another task claims only those without a log."""
    return crc32(task_id.encode()) % 2 == 0


class LedgerRow(NamedTuple):
    """One line of the ledger: a tool was called, or the model begins to answer."""

    id: str
    task: str
    context: str
    turn: int
    step: int
    """0: no tool, but the answer; of it nobody knows task, call and attempt."""
    call: str
    """What tools are told to tell a call from another one: the run's idempotency key and the call's id."""
    attempt: int
    pid: int
    at: float
    """Monotonic seconds, the same for all processes of the machine."""
    until: float
    """When the tool will have returned, or the first word comes."""


class AnswerWord(NamedTuple):
    """One word of an answer: who says it, in which model response, and what."""

    speaker: str
    """Of one model response in one process; never used again."""
    kind: str
    """`turn`: a prompt that the model sees. `step`: a result of a tool that it sees in this turn."""
    value: str

    @classmethod
    def all(cls, text: str) -> list[AnswerWord]:
        """The words of an answer."""
        return [cls(*word.split('|')) for word in text.split()]

    @property
    def text(self) -> str:
        """As it is streamed."""
        return f'{"|".join(self)} '


@dataclass(frozen=True)
class SentMessage:
    """A message of a client, which sent it until it was accepted."""

    message: str
    """Its id."""
    context: str
    turn: int
    steps: int
    """How often the agent is to call its tool."""
    cancelled: bool = False
    """Whether the client asked for the end of its task."""
    tasks: Sequence[str] = ()
    """The tasks with which it was answered, each time."""


class Outage(NamedTuple):
    """A time in which a process could not renew its leases, in the ledger's seconds."""

    pid: int | None
    """None: none could, for the store was away."""
    begin: float
    end: float = inf
    """Until what was lost by then is known to be; a process that has ended does not come back."""


class Recovery(NamedTuple):
    """A task whose process was lost."""

    turn: str
    lost: float
    begun: float | None
    """When another process went on with it; None if none did for very long."""


class Event(NamedTuple):
    """An event of a task's log."""

    n: int
    body: Mapping[str, Any]

    @property
    def state(self) -> str | None:
        """The state it moves the task to."""
        status = self.body.get('statusUpdate')
        return None if status is None else status['status']['state'].removeprefix('TASK_STATE_')


@dataclass
class ReaderConnection:
    """What came over one connection."""

    after: int | None = None
    """The number in `Last-Event-ID`; None for none."""
    snapshot: tuple[int, str] | None = None
    """Number and state of the task that came first, if one did."""
    events: list[Event] = field(default_factory=list[Event])
    closed: bool = False
    """Whether the server closed it properly."""

    @property
    def last(self) -> int | None:
        """What to resume from."""
        if self.events:
            return self.events[-1].n
        return self.after if self.snapshot is None else self.snapshot[0]


class ObservedState(NamedTuple):
    """A state in which a task was seen."""

    task: str
    state: str


@dataclass(frozen=True)
class FinalTask:
    """A task at the end of all."""

    id: str
    context: str
    state: str
    failure: str | None = None
    """Why it failed."""
    messages: Sequence[str] = ()
    """Ids of the client's messages in its history."""
    answers: Sequence[str] = ()
    """Texts of the agent's messages in its history."""
    artifacts: Sequence[str] = ()
    """Texts of its artifacts."""
    log: Sequence[Event] = ()
    """All its events, if it is logged."""
    logged: bool = True
    """Whether the log begins with the message, and not with the first reader."""


@dataclass(frozen=True)
class Facts:
    """All of it."""

    ledger: Sequence[LedgerRow] = ()
    sent: Sequence[SentMessage] = ()
    """In the order of each context."""
    tasks: Sequence[FinalTask] = ()
    readers: Mapping[str, Sequence[Sequence[ReaderConnection]]] = field(
        default_factory=dict[str, Sequence[Sequence[ReaderConnection]]]
    )
    """Per task its readers, and of each what came over its connections, one after the other."""
    sightings: Sequence[ObservedState] = ()
    refusals: Sequence[tuple[str, str]] = ()
    """Messages whose client was told that something is its fault, and what."""
    away: Sequence[Outage] = ()
    recoveries: Sequence[Recovery] = ()
    deadline: float = inf
    """Seconds that a recovery may take while the store is there."""
    dead_letters: bool = False
    """Whether so few attempts are allowed that tasks may fail for it."""
    undone: Sequence[str] = ()
    """What was planned and has not been done."""
