"""The ports to storage, as abstract classes: the service and the worker use no other way to a store.

Plain values go in and out. Every method keeps these rules:

- Reads see all writes that were answered before (read-your-writes).
- Inputs are never mutated.
- A write happens whole or not at all.
- A terminal task never changes its state. At most one task of a context runs.
- Subscribers get only stored events, in order and without gaps. A store may leave events out of the log until the first
  `TaskReader.watch` of a task, or until a `submit` with `logged`.
- Every write of a run has the fence of its claim. With an old fence, the write raises `LeaseLost`.
- The store measures leases, by a clock that all users of the store share and that nobody sets. All other times are
  arguments, from `Backend.now`, which a shared store may override.
- Messages, artifacts and events are bytes: A2A 1.0 JSON. `pydantic_ai_a2a.store.stored` makes those that a backend
  writes itself, with `with_ids`, `status`, `status_update` and `assemble`.
- `TaskHeader.queued` is true while a task waits for a worker. A new task is queued and `submitted`, an answered task
  queued and `working`. Another task of the context may run meanwhile.

`owner` is `Caller.owner`; a method with an `owner` treats the tasks of other owners as unknown tasks. A store that is
unavailable for a while raises `StoreUnavailable`: the server tells the client to try again, and a run repeats
the call until the call succeeds. Any other error fails the task of the run.
"""

from __future__ import annotations

from .backend import Backend
from .checked_answer import Answer
from .checked_message import Accepted, Submission
from .checkpoint import Checkpoint
from .claim import Claim
from .credentials import CredentialStore, SealedCredential
from .dead_letter import DEAD_LETTER, DEAD_LETTERS, DeadLetter
from .engine_payloads import PayloadStore
from .event_log import Ending, EventLog, Subscription
from .exported_items import ExportedConversation, ExportedTask
from .hook_calls import HookCall, HookCalls
from .housekeeping import Erased, Housekeeping, OnExpired, Swept
from .offered_slot import Slot
from .outbox import DeadDelivery, Delivery, Leased, Outbox
from .pause import Pause
from .push_configs import PushConfig, PushConfigs, Takes
from .quotas import Bucket, Charge, QuotaStore, Spent
from .renewal_marks import Marks
from .run_end import Finish
from .stored_status import Status
from .task_queue import TaskQueue
from .task_reader import TaskReader
from .wrapped_queue import WrappedQueue

__all__ = [
    'DEAD_LETTER',
    'DEAD_LETTERS',
    'Accepted',
    'Answer',
    'Backend',
    'Bucket',
    'Charge',
    'Checkpoint',
    'Claim',
    'CredentialStore',
    'DeadDelivery',
    'DeadLetter',
    'Delivery',
    'Ending',
    'Erased',
    'EventLog',
    'ExportedConversation',
    'ExportedTask',
    'Finish',
    'HookCall',
    'HookCalls',
    'Housekeeping',
    'Leased',
    'Marks',
    'OnExpired',
    'Outbox',
    'Pause',
    'PayloadStore',
    'PushConfig',
    'PushConfigs',
    'QuotaStore',
    'SealedCredential',
    'Slot',
    'Spent',
    'Status',
    'Submission',
    'Subscription',
    'Swept',
    'Takes',
    'TaskQueue',
    'TaskReader',
    'WrappedQueue',
]
