"""Pages of ListTasks for callers that may decide about others' tasks: own waiting tasks, and others' open approvals.

Both come newest first, each from an index, and are merged. A scope as `Approvals.approvers` allows all of them at once.
A function is asked for one task after another, until the page is full, or until it was asked often or long enough: such
a page is shorter than asked, and the client goes on with its token.

So a page may end behind a task that the caller may not know. Nobody can read the tokens (`sealed_tokens`), and with a
function, `totalSize` counts own tasks and those of others that the pages so far have shown.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from dataclasses import replace
from typing import NamedTuple

from ...errors import ClientGone, OverloadedError
from ...types.service_calls import Call
from ...types.stored_tasks import StoredTask, TaskHeader
from ...types.task_queries import Page, TaskQuery
from ..auth.request_info import PATIENCE
from ..store.ports import OpenApprovals, Pause, TaskReader
from .approvers import RULE, ApproverAccess
from .sealed_tokens import PagePosition, TokenSeal

logger = logging.getLogger('pydantic_ai_a2a')

MOST_ASKED = 100
"""The most tasks for which a function is asked in one request."""


class _Entry(NamedTuple):
    """A task that a page may show."""

    position: tuple[int, str]
    task: StoredTask | TaskHeader
    """A task of the caller, or the header of a task of another owner."""
    pause: Pause | None = None
    """The pause of a task of another owner."""


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
        own, others = await self._read(call.caller.owner, replace(query, before=start.before))
        entries, complete = _merged(own, others, most=self._most(query))
        verdicts = _Verdicts(self._access, call)
        tasks, position, room = list[StoredTask](), start, sys.maxsize if query.max_bytes is None else query.max_bytes
        more = True
        for entry in entries:
            if len(tasks) == query.page_size:
                break
            task = entry.task if isinstance(entry.task, StoredTask) else await verdicts.view(entry.task, entry.pause)
            if verdicts.late:
                break
            if task is not None:
                room -= _size(task)
                if tasks and room < 0:
                    break
                tasks.append(task)
            position = PagePosition(entry.position, position.shown + (task is not None and entry.pause is not None))
        else:
            more = not complete
        verdicts.report()
        total = own.total + (others.total if self._access.by_scope else position.shown)
        return Page(tasks, None, total), await self._seal.sealed(position, names) if more else ''

    async def _read(self, owner: str, query: TaskQuery) -> tuple[Page, OpenApprovals]:
        """Return the own tasks of a page, and the tasks of others that it may have."""
        others = await self._reader.open_approvals(
            owner, limit=self._most(query), before=query.before, since=query.since
        )
        return await self._reader.list(query), others

    def _most(self, query: TaskQuery) -> int:
        return query.page_size + 1 if self._access.by_scope else MOST_ASKED


def _merged(own: Page, others: OpenApprovals, *, most: int) -> tuple[list[_Entry], bool]:
    """Return the tasks of both, newest first, as far as both are known; and whether there are no more."""
    entries = [_Entry((task.header.status_at, task.header.id), task) for task in own.tasks]
    entries += [_Entry((header.status_at, header.id), header, pause) for header, pause in others.tasks]
    known = [] if own.next is None else [own.next]
    if len(others.tasks) == most:
        header, _ = others.tasks[-1]
        known.append((header.status_at, header.id))
    entries.sort(reverse=True, key=lambda entry: entry.position)
    return [entry for entry in entries if not known or entry.position >= max(known)], not known


def _size(task: StoredTask) -> int:
    """Return the bytes of the messages and artifacts of a task."""
    message = task.header.status_message
    return sum(map(len, (*(task.history or ()), *(task.artifacts or ()), message or b'')))


class _Verdicts:
    """Asks `Approvals.approvers` about the tasks of a page, one after another, within one bound of time."""

    late = False
    """True once the time is up."""

    def __init__(self, access: ApproverAccess, call: Call) -> None:
        self._access = access
        self._call = call
        self._until = asyncio.get_running_loop().time() + PATIENCE
        self._answered = 0
        self._failures: list[Exception] = []

    async def view(self, header: TaskHeader, pause: Pause | None) -> StoredTask | None:
        """Return what the caller sees of a task; None if the caller is no approver, or if the time is up.

        Raises:
            ClientGone: The client has gone.
            OverloadedError: The function does not return in time, already for the first task.
        """
        bound = asyncio.timeout_at(self._until if self._answered else None)
        try:
            async with bound:
                allowed = await self._access.verdict(self._call, header, pause)
            self._answered += 1
            return self._access.shown(header, pause) if allowed else None
        except (ClientGone, OverloadedError):
            raise
        except Exception as error:
            self.late = bound.expired()
            if not self.late:
                self._failures.append(error)
            return None

    def report(self) -> None:
        """Write a line to the log if the function has failed.

        Raises:
            Exception: The function has failed for all tasks.
        """
        if not self._failures:
            return
        if not self._answered:
            raise self._failures[0]
        text = '%s has failed for %d tasks of a list, which leaves them out (correlation id %s).'
        logger.error(text, RULE, len(self._failures), self._call.correlation_id, exc_info=self._failures[0])
