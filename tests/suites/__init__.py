"""Suites for backends, to inherit: the contracts of the ports as tests. See "Write a backend".

- `BackendSuite` is for every backend, `DurableSuite` for stores that processes share, and `CheckpointSuite` for
  backends that store the steps of runs. `DurableBackendSuite` has all three.
- `PushSuite`, `CredentialSuite`, `HookCallSuite` and `PayloadSuite` are for backends with webhooks, with credentials,
  with `HookCalls` and with a `PayloadStore`.
- `ConversationStoreSuite` is for every `ConversationStore` of Pydantic AI, with the fixture `store`.
- `TaskQueueSuite` tries so many orders of calls as `examples` says, 40 by default.

Use pytest-asyncio only in its strict mode: async tests run with the plugin of anyio.
"""

from __future__ import annotations

from .answers import AnswerSuite
from .backend import ListenSuite
from .cancel import CancelSuite
from .checkpoints import CheckpointSuite, PayloadSuite
from .claim import ClaimSuite
from .conversations import ContextSuite, ConversationStoreSuite
from .credentials import CredentialSuite
from .dead_letters import DeadLetterSuite
from .durable import DurableSuite
from .endings import EndingSuite
from .events import EventLogSuite
from .export import ExportSuite
from .hook_calls import HookCallSuite
from .housekeeping import RetentionSuite
from .next_tasks import NextTaskSuite
from .open_approvals import OpenApprovalsSuite
from .outbox import OutboxSuite, PendingDeliverySuite
from .owners import OwnerSuite
from .push import PushConfigSuite
from .queues import OwnerLimitSuite, QueuesSuite
from .quotas import QuotaSuite
from .reader import TaskReaderSuite, TotalsSuite
from .rehearsal import RehearsalSuite
from .runs import RunSuite
from .schedule import ScheduleSuite
from .steering import SteeringSuite
from .submit import SlotSuite, SubmitSuite
from .values import READER_LAG

__all__ = (
    'READER_LAG',
    'BackendSuite',
    'CheckpointSuite',
    'ConversationStoreSuite',
    'CredentialSuite',
    'DurableBackendSuite',
    'DurableSuite',
    'EventLogSuite',
    'HookCallSuite',
    'HousekeepingSuite',
    'OpenApprovalsSuite',
    'PayloadSuite',
    'PushSuite',
    'QuotaSuite',
    'TaskQueueSuite',
    'TaskReaderSuite',
)


class TaskQueueSuite(
    SubmitSuite,
    SlotSuite,
    ClaimSuite,
    NextTaskSuite,
    OwnerLimitSuite,
    RunSuite,
    SteeringSuite,
    AnswerSuite,
    CancelSuite,
    RehearsalSuite,
    ScheduleSuite,
):
    """Tests of `TaskQueue`: order, one run for each context, leases and fences, all or nothing."""


class HousekeepingSuite(RetentionSuite, ExportSuite, DeadLetterSuite, QueuesSuite):
    """Tests of `Housekeeping`: retention by age and number, and the commands of operators."""


class PushSuite(PushConfigSuite, OutboxSuite, PendingDeliverySuite):
    """Tests of `PushConfigs`, `Outbox` and their `Housekeeping`, for backends with push notifications."""


class BackendSuite(
    TaskQueueSuite,
    TaskReaderSuite,
    TotalsSuite,
    EventLogSuite,
    EndingSuite,
    HousekeepingSuite,
    QuotaSuite,
    ConversationStoreSuite,
    ContextSuite,
    OwnerSuite,
    ListenSuite,
):
    """Tests of every backend: each port alone, and all ports together.

    The suite needs a fixture `make_backend`, in the class or in a `conftest.py`: a function without arguments, for
    a backend over a new, empty store, with readers of at most `READER_LAG` bytes behind.
    """


class DurableBackendSuite(BackendSuite, CheckpointSuite, DurableSuite):
    """Tests of every durable backend. Needs both fixtures."""
