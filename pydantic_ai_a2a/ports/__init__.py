"""The seams to storage, as abstract classes: the service and the worker are written against these and nothing else.

Plain values go in and out. For every method: reads see all writes that were answered before (read-your-writes), inputs
are never mutated, a write either happens whole or not at all, a terminal task is never moved again, and events reach
subscribers only once they are stored. `owner` is `Caller.owner`; a method that takes one treats another owner's task
exactly as one that does not exist. A store that cannot be reached or written for a while raises `StoreUnavailable`: a
client is told to try again, and a run repeats its call until it succeeds. Any other error fails the task of the run.
"""

from __future__ import annotations

from .backend import Backend
from .housekeeping import DEAD_LETTER, DEAD_LETTERS, DeadLetter, Erased, ExportedConversation, Housekeeping, OnExpired
from .push import DeadDelivery, Delivery, Leased, Outbox, PushConfig, PushConfigs, Takes
from .quotas import Bucket, Charge, QuotaStore, Spent, amounts_of
from .reading import EventLog, Subscription, TaskReader
from .tasks import Accepted, Answer, Checkpoint, Claim, Finish, Marks, Status, Submission, TaskQueue

__all__ = (
    'DEAD_LETTER',
    'DEAD_LETTERS',
    'Accepted',
    'Answer',
    'Backend',
    'Bucket',
    'Charge',
    'Checkpoint',
    'Claim',
    'DeadDelivery',
    'DeadLetter',
    'Delivery',
    'Erased',
    'EventLog',
    'ExportedConversation',
    'Finish',
    'Housekeeping',
    'Leased',
    'Marks',
    'OnExpired',
    'Outbox',
    'PushConfig',
    'PushConfigs',
    'QuotaStore',
    'Spent',
    'Status',
    'Submission',
    'Subscription',
    'Takes',
    'TaskQueue',
    'TaskReader',
    'amounts_of',
)
