"""The suites to inherit from: one for each port, and one with all suites."""

from __future__ import annotations

from .answers import AnswerSuite
from .backend import ListenSuite
from .cancel import CancelSuite
from .checkpoints import CheckpointSuite
from .claim import ClaimSuite
from .conversations import ContextSuite, ConversationStoreSuite
from .dead_letters import DeadLetterSuite
from .durable import DurableSuite
from .endings import EndingSuite
from .events import EventLogSuite
from .export import ExportSuite
from .housekeeping import RetentionSuite
from .machine import QueueMachineSuite
from .outbox import OutboxSuite
from .owners import OwnerSuite
from .pending_deliveries import PendingDeliverySuite
from .push_configs import PushConfigSuite
from .queues import OwnerLimitSuite, QueuesSuite
from .quotas import QuotaSuite
from .reader import TaskReaderSuite
from .rehearsal import RehearsalSuite
from .runs import RunSuite
from .slots import SlotSuite
from .steering import SteeringSuite
from .submit import SubmitSuite
from .totals import TotalsSuite

__all__ = ('BackendSuite', 'DurableBackendSuite', 'HousekeepingSuite', 'PushSuite', 'TaskQueueSuite')


class TaskQueueSuite(
    SubmitSuite,
    SlotSuite,
    ClaimSuite,
    OwnerLimitSuite,
    RunSuite,
    SteeringSuite,
    AnswerSuite,
    CancelSuite,
    RehearsalSuite,
    QueueMachineSuite,
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
