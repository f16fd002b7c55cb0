"""Suites for backends, to inherit: the contracts of the ports as tests. See "Write a backend"."""

from .checkpoints import CheckpointSuite
from .conversations import ConversationStoreSuite
from .credentials import CredentialSuite
from .durable import DurableSuite
from .events import EventLogSuite
from .payloads import PayloadSuite
from .quotas import QuotaSuite
from .reader import TaskReaderSuite
from .suites import BackendSuite, DurableBackendSuite, HousekeepingSuite, PushSuite, TaskQueueSuite
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
    'HousekeepingSuite',
    'PayloadSuite',
    'PushSuite',
    'QuotaSuite',
    'TaskQueueSuite',
    'TaskReaderSuite',
)
