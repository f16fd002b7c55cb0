"""Pages of ListTasks for callers that may decide about others' tasks: own waiting tasks, and others' open approvals.

Both come newest first, each from an index, and are merged. A scope as `Approvals.approvers` allows all of them at once.
A function is asked for one task after another, also for own tasks with an open approval, until the page is full, or
until it was asked often or long enough: such a page is shorter than asked, and the client goes on with its token.

So a page may end behind a task that the caller may not know. Nobody can read the tokens (`sealed_tokens`), and with a
function, `totalSize` counts own tasks and those of others that the pages so far have shown.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from ...base_exceptions import ends_task
from ...errors import ClientGone, OverloadedError
from ...types.service_calls import Call
from ...types.stored_tasks import StoredTask, TaskHeader
from ...types.task_queries import Page, TaskQuery
from ..auth import request_info
from ..store.ports import Pause, TaskReader
from .approvers import RULE, ApproverAccess, marked, waiting_approvals
from .sealed_tokens import PagePosition, TokenSeal

logger = logging.getLogger('pydantic_ai_a2a')

MOST_ASKED = 100
"""The most tasks for which a function is asked in one request."""


class _Entry(NamedTuple):
    """A task that a page may show."""

    header: TaskHeader
    pause: Pause | None
    """The pause of a task with an open approval."""
    own: StoredTask | None
    """A task of the caller; None for a task of another owner."""

    @property
    def position(self) -> tuple[int, str]:
        return self.header.status_at, self.header.id


class ApproverLists:
    """Pages of tasks for approvers.

    Args:
        access: Applies `Approvals.approvers`.
        reader: Reads tasks of all owners.
    """

    def __init__(self, access: ApproverAccess, reader: TaskReader) -> None:
        self._access = access
        self._reader = reader
        self._seal = TokenSeal(reader)

    def covers(self, call: Call, query: TaskQuery) -> bool:
        """Return whether a list has tasks of others: a possible approver lists all tasks that wait for input.

        A list of one context does not: the names of others' contexts are theirs.
        """
        return query.state == 'input-required' and query.context_id is None and self._access.may_list(call.caller)

    async def page(self, call: Call, query: TaskQuery, token: str | None) -> tuple[Page, str]:
        """Return a page, and the token of the next page; an empty token after the last page.

        Raises:
            InvalidParamsError: The token belongs to another caller, list or rule.
            OverloadedError: The function does not return in time.
            UnsupportedOperationError: The store does not find the approvals of other owners.
        """
        names = (call.caller.id, query.owner, query.state, query.since, self._access.rule_name)
        start = PagePosition() if token is None else await self._seal.opened(token, names)
        own, entries, end = await self._candidates(call.caller.owner, replace(query, before=start.before))
        verdicts = _Verdicts(self._access, call)
        tasks, position, room = list[StoredTask](), start, sys.maxsize if query.max_bytes is None else query.max_bytes
        for entry in entries:
            if len(tasks) == query.page_size:
                break
            allowed = await verdicts.about(entry)
            if entry.own is not None:
                task = marked(entry.own, 'caller' if allowed else 'approver')
            elif verdicts.overload is None:
                task = self._access.shown(entry.header, entry.pause, decided_by='caller') if allowed else None
            elif position == start:
                raise verdicts.overload
            else:  # the next page begins with this task
                break
            if task is not None:
                room -= _size(task)
                if tasks and room < 0:
                    break
                tasks.append(task)
            position = PagePosition(entry.position, position.shown + (task is not None and entry.own is None))
        else:
            position = None if end is None else PagePosition(end, position.shown)
        verdicts.report(is_empty=token is None and not tasks)
        if self._access.by_scope:
            others = await self._reader.count_open_approvals(call.caller.owner, since=query.since)
        else:
            others = start.shown + sum(task.header.owner != call.caller.owner for task in tasks)
        following = '' if position is None else await self._seal.sealed(position, names)
        return Page(tasks, None, own.total + others), following

    async def _candidates(self, owner: str, query: TaskQuery) -> tuple[Page, Sequence[_Entry], tuple[int, str] | None]:
        """Return the own tasks of a page, all tasks that it may have, and where they end: None if no more follow."""
        own = await self._reader.list(query)
        most = query.page_size + 1 if self._access.by_scope else MOST_ASKED
        approvals = await self._reader.open_approvals(owner, limit=most, before=query.before, since=query.since)
        pauses = {(header.id, pause.number): pause for header, pause in approvals}
        entries = [_Entry(header, pause, None) for header, pause in approvals if header.owner != owner]
        entries += [
            _Entry(task.header, pauses.get((task.header.id, task.header.last_event)), task) for task in own.tasks
        ]
        entries.sort(reverse=True, key=lambda entry: entry.position)
        ends = [] if own.next is None else [own.next]
        if len(approvals) == most:
            last, _ = approvals[-1]
            ends.append((last.status_at, last.id))
        if not ends:
            return own, entries, None
        end = max(ends)  # of the older tasks, only the own ones or the others are known
        return own, [entry for entry in entries if entry.position >= end], end


def _size(task: StoredTask) -> int:
    """Return the bytes of the messages and artifacts of a task."""
    message = task.header.status_message
    return sum(map(len, (*(task.history or ()), *(task.artifacts or ()), message or b'')))


class _Verdicts:
    """Asks `Approvals.approvers` about the tasks of a page, one after another, within one bound of time."""

    overload: OverloadedError | None = None
    """The error of a function that has not returned in time. It is not asked any more."""

    def __init__(self, access: ApproverAccess, call: Call) -> None:
        self._access = access
        self._call = call
        self._clock = asyncio.get_running_loop().time
        self._until = self._clock() + request_info.FUNCTION_TIME
        self._answered = 0
        self._failures: list[BaseException] = []
        self._leaves_out = False

    async def about(self, entry: _Entry) -> bool:
        """Return whether the caller may give the open approvals of a task; False also if nobody knows.

        Raises:
            ClientGone: The client has gone.
        """
        if entry.pause is None or self.overload is not None:
            return False
        current = asyncio.current_task()
        try:
            waiting_approvals(entry.pause)  # what is damaged is left out
            allowed = await self._access.verdict(
                self._call, entry.header, entry.pause, within=max(0, self._until - self._clock())
            )
        except OverloadedError as error:
            self.overload = error
            return False
        except BaseException as error:
            if isinstance(error, ClientGone) or ends_task(error, current):
                raise
            self._failures.append(error)
            self._leaves_out |= entry.own is None
            return False
        self._answered += 1
        return allowed

    def report(self, *, is_empty: bool) -> None:
        """Write a line to the log if the function has failed.

        Args:
            is_empty: True if a list has nothing else.

        Raises:
            BaseException: The function has failed for all tasks, and the list is empty for that reason.
        """
        if not self._failures:
            return
        if is_empty and self._leaves_out and not self._answered:
            raise self._failures[0]
        text = '%s has failed for %d tasks of a list, which leaves out those of other owners (correlation id %s).'
        logger.error(text, RULE, len(self._failures), self._call.correlation_id, exc_info=self._failures[0])
