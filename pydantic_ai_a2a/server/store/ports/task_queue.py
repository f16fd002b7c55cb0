"""The port of the task queue: submit, claim, renew, emit, finish, release."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Sequence

from ....types.stored_tasks import TaskHeader
from .checked_message import Accepted, Submission
from .claim import Claim
from .failed_tries import Tried
from .offered_slot import Slot
from .quotas import Charge
from .renewal_marks import Marks
from .run_writes import Sink


class TaskQueue(Sink):
    """The state machine of tasks. Every method is one transaction.

    A run writes most events with `emit` and `finish`. A backend writes only these itself, in the transaction of the
    change:

    - `submit` to a waiting task: `working`; or the waiting state again, with `Answer.rest` as its message
    - `claim`: `working`, unless readers of the task already know this state, as after an answer
    - `finish`: `finish.final`; if the task continues with another message, `working`, with the message if there is one
    - `cancel` of a queued or waiting task, or with `force`: `canceled`; of a running task: none, its holder ends it
    - `Housekeeping.sweep` of a task that has waited too long: `failed`

    The end of a completed or cancelled task adds its model messages to the context, also those that it kept while it
    waited. A cancel also ends each unanswered call.
    """

    takes_next = False
    """True if `finish` also claims the next queued task for `Finish.slot`, and returns its claim.

    The task is the one that `claim` would take first with `lost=False`, but `finish` may leave any task to `claim`. If
    the ended task goes on with an unread message, it keeps the slot. A caller without an answer does not know the next
    task: the second `finish`, or a `release` of the ended task, releases the next task.

    False in a `WrappedQueue`, because a `claim` of its own shall choose all tasks."""

    @abstractmethod
    async def submit(
        self, submission: Submission, *, queue_limit: int, idempotency_window: int, slot: Slot | None = None
    ) -> Accepted:
        """Store a message, and create a task or add the message to the continued task.

        A message to a waiting task is the answer of the client: the next run gets the answer before older unread
        messages.

        A message (owner, message id, digest) that was accepted before returns the first task again. Messages of an
        anonymous owner are recognised only with an id of 16 or more characters, and within `idempotency_window` (ms).
        With a window of 0, no message is recognised.

        With `slot`, the same transaction claims the queued task of the message for the slot. The task waits instead
        while an earlier task of the context is queued or running, or while a claim could take a task from the queue.
        `Accepted.header` and `Accepted.after` are the same as without a slot. A backend may ignore the slot.

        Raises:
            TaskNotFoundError: The owner has no such task to continue.
            UnsupportedOperationError: The task has ended; or the task does not wait, and `submission.only_waiting` is
                set; or the task has resumed since `submission.pause`.
            InvalidParamsError: The message names another context, or a known message id with another content.
            AnswerNeeded: The task waits with calls, and there is no `submission.answer`; or the answer is for another
                pause than the current one. Nothing is stored.
            OverloadedError: `queue_limit` tasks are queued already. A backend of several processes may count the tasks
                of the others now and then.
            BeingErased: `Housekeeping.set_erasing` refuses the message.
            QuotaExceededError: `submission.task_limit` tasks of the owner are queued or running already.
        """

    @abstractmethod
    async def cancel(self, task_id: str, owner: str | None, *, at: int, force: bool = False) -> TaskHeader:
        """Cancel a queued or waiting task at once; ask the holder of a running task to cancel.

        `force` cancels a running task at once; the holder loses the task.

        Raises:
            TaskNotFoundError: The owner has no such task.
            TaskNotCancelableError: The task has ended.
        """

    @abstractmethod
    async def claim(
        self,
        slot: Slot,
        *,
        at: int,
        limit: int,
        task_id: str | None = None,
        skip: Collection[str] = (),
        lost: bool = True,
    ) -> list[Claim]:
        """Claim runnable tasks, at most one of each context, and set the tasks to `working`.

        Tasks with expired leases come first. Then owners with queued tasks take turns: a round has one task of each
        owner. A task gets a round once the task is the first of the context: the round after the owner's last queued
        task, or the current round. Tasks of one round are in the order of submission.

        With `task_id`, only that task is claimed, also before the end of its pause (see `release`). A task with the
        expired lease of another holder counts as one more attempt.

        The store measures leases with one clock for all processes; setting the wall clock does not change a lease. A
        lease of less than 0 has expired at once.

        Args:
            slot: The slots of the claiming worker.
            at: Time of the new status (ms since the epoch).
            limit: The most tasks to claim.
            task_id: The only task to claim.
            skip: Tasks not to claim.
            lost: False to leave tasks with expired leases to a later claim. Released tasks are claimed all the same.
        """

    @abstractmethod
    async def renew(self, holder: str, tasks: Sequence[str], *, lease: int) -> Marks:
        """Renew the leases of the given tasks: `lease` milliseconds from now."""

    @abstractmethod
    async def release(
        self, claim: Claim, tried: Tried | None = None, *, pause: int | None = None, charges: Sequence[Charge] = ()
    ) -> None:
        """Release a running task, for any holder to claim. The state, context and checkpoint stay.

        Args:
            claim: The claim. A claim that is no longer valid changes nothing.
            tried: The failed tries of the run, for the next claim of the run.
            pause: Milliseconds until `claim` finds the task, by the clock of leases; None for none.
            charges: The run's usage over all attempts and tries, as `Finish.charges`.
        """

    @abstractmethod
    def rehearsal(self) -> TaskQueue:
        """Return a queue that tries each write and undoes it.

        A call returns the result, or raises the error, that the same call of this queue would have now. Nothing is
        stored, no event is published, and no callback is called.
        """
