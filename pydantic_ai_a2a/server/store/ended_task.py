"""The whole task at the end of a run, made of the claim and the end alone, without a read."""

from __future__ import annotations

from ...types.stored_tasks import StoredTask, TaskHeader
from .ports import Claim, Finish


def ended_task(claim: Claim, end: Finish) -> StoredTask | None:
    """Return the task as stored by the end of the only run, or None if the task may hold more.

    The run is the first run under the first claim, and has stored no events: so there was no status and no second
    message. A task with unread messages goes on, and the last event is not stored.
    """
    only = claim.fence == claim.run == 1 and [*end.events, end.final][0].n == claim.header.last_event + 1
    if not only or end.status.state != 'completed' or end.taken or end.last or end.artifacts is None:
        return None
    header = TaskHeader(
        id=claim.header.id,
        context_id=claim.header.context_id,
        owner=claim.header.owner,
        state=end.status.state,
        status_at=end.status.at,
        status_message=end.status.message,
        metadata=claim.header.metadata if end.metadata is None else end.metadata,
        last_event=end.final.n,
        dialect=claim.header.dialect,
        queued=claim.header.queued,
    )
    history = [claim.message, *(body for _, body in end.history)]
    return StoredTask(header, history, [body for _, body in end.artifacts])
