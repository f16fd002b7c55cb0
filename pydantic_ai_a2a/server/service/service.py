"""One method for each A2A operation: the access rules and the meaning, apart from protocol versions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ...bounded_wait import bounded_wait
from ...errors import TaskNotFoundError, UnsupportedOperationError
from ...settings.app_settings import Settings
from ...task_states import TERMINAL, check_subscribe
from ...types.a2a_objects import TaskState
from ...types.operation_params import (
    CancelParams,
    CreatePushParams,
    GetParams,
    ListParams,
    ListPushParams,
    PushParams,
    SendParams,
    SubscribeParams,
)
from ...types.service_calls import Call
from ...types.stored_tasks import StoredTask, TaskHeader
from ...types.task_queries import Page, TaskQuery
from ...types.webhook_targets import Registered
from ...wire.protocol import stored
from ...wire.protocol.page_tokens import task_before, task_token
from ..audit import Fact
from ..conversion.message_limits import check_metadata
from ..quotas import Metering
from ..store.ports import Accepted, Backend, Submission, Subscription
from ..store.ports.credentials import with_credential
from .answers import IncomingMessages
from .approver_lists import ApproverLists
from .approvers import ApproverAccess
from .cancellation import canceled
from .event_streams import EventStream
from .live_text_form import FORMS, LiveTextForm
from .loaded_task import loaded
from .slot_offers import Offers
from .submissions import Submissions
from .webhook_registration import registration_of

if TYPE_CHECKING:
    from ..auth.credential_vault import CredentialVault
    from ..push.registration import Registration


logger = logging.getLogger('pydantic_ai_a2a')

_ENDS_SEND: frozenset[TaskState] = TERMINAL | frozenset[TaskState]({'input-required'})


class TaskList(NamedTuple):
    """The answer of ListTasks."""

    page: Page
    page_size: int
    """Maximum number of tasks, as requested."""
    next_page_token: str
    """Start of the next page, for this owner and filter only; empty after the last page."""


class Service:
    """The operations of one agent, for authenticated callers.

    Args:
        backend: Stores the tasks.
        settings: Settings of the app.
        submissions: Checks the messages of clients.
        metering: Checks the quotas of callers; None without quotas.
        push: The webhooks of clients; None without push notifications.
        offers: Offers a free slot for the task of a new message.
        vault: Exchanges and stores the credentials of callers; None without `Access.credentials`.
    """

    def __init__(
        self,
        backend: Backend,
        settings: Settings,
        submissions: Submissions,
        *,
        metering: Metering | None,
        push: Registration | None,
        offers: Offers,
        vault: CredentialVault | None,
    ) -> None:
        self._backend = backend
        self._limits = settings.limits
        self._max_wait = settings.limits.max_wait  # a read of the setting is a call
        self.submissions = submissions
        """Checks messages without storage, and converts them to the stored form."""
        self._load = partial(loaded, backend)
        self._vault = vault
        self._push = push
        self._form = settings.results.stream
        rule = settings.approvals.approvers
        self._approvers = None if rule is None else ApproverAccess(rule, backend.reader, settings.approvals)
        self._lists = None if self._approvers is None else ApproverLists(self._approvers, backend.reader)
        self.incoming = IncomingMessages(
            backend, settings, submissions, approvers=self._approvers, metering=metering, offers=offers
        )
        """Puts messages into tasks."""

    # --- messages ---------------------------------------------------------------------------------------------------

    async def send_message(self, call: Call, params: SendParams) -> StoredTask:
        """Store the message and run its task. Return the task after its stop, or at once if requested (§3.1.1)."""
        approvers = self._approvers
        if approvers is not None and (decided := await self.incoming.decide(approvers, call, params)) is not None:
            return decided
        submission = await self.submissions.check(call, params)
        if self._vault is not None:
            submission = await self._with_credential(self._vault, submission, call)
        if params.return_immediately:
            accepted = await self.incoming.submit(submission, call, params.message)
            return self._own(call, await self._snapshot(submission, accepted, params.history_length))
        ending = self._backend.events.expect(submission.task_id)
        try:
            accepted = await self.incoming.submit(submission, call, params.message)
            task_id, task = accepted.header.id, None
            begins = accepted.claim is not None or (submission.new and not accepted.replayed)
            if ending is None or not begins:  # the task may have stopped in another process
                await bounded_wait(self._max_wait, self._backend.events.wait(task_id, accepted.after), call.left)
            else:
                task = await bounded_wait(self._max_wait, ending.wait(accepted.after), call.left)
        finally:
            if ending is not None:
                ending.close()
        if task is None:
            task = await self._load(task_id, call.caller.owner, params.history_length)
        else:
            task = shortened(task, params.history_length)
        return self._own(call, task)

    async def stream_message(self, call: Call, params: SendParams, on_drop: Callable[[], object]) -> EventStream:
        """Like `send_message`, with the task as the first item, followed by its events (§3.1.2)."""
        approvers = self._approvers
        if approvers is not None and (decided := await self.incoming.decide(approvers, call, params)) is not None:
            return EventStream(decided.header.id, decided, None, _ENDS_SEND)
        submission = await self.submissions.check(call, params)
        if not submission.new:
            await self._check_seen(submission.task_id, call)
        if self._vault is not None:
            submission = await self._with_credential(self._vault, submission, call)
        form = self._form_for(call)
        subscription = self._backend.events.subscribe(submission.task_id, on_drop, live=form.pieces)
        try:
            accepted = await self.incoming.submit(replace(submission, logged=True), call, params.message)
            if accepted.header.id != submission.task_id:  # a repeated message: join the task of the first
                subscription.close()
                subscription = self._backend.events.subscribe(accepted.header.id, on_drop, live=form.pieces)
            first = await self._snapshot(submission, accepted, params.history_length, form)
        except BaseException:
            subscription.close()
            raise
        return self._stream(call, first, subscription, _ENDS_SEND | params.also_ends, form)

    async def _with_credential(self, vault: CredentialVault, submission: Submission, call: Call) -> Submission:
        """Return a message of the owner of its task with the credential for the run."""
        exchange = vault.exchange(call.request, call.caller, submission.task_id)
        credential = await call.request.ask('Credentials.exchange', exchange)
        request = with_credential(submission.request, credential)
        return replace(submission, request=request, credential=credential)

    async def _snapshot(
        self, submission: Submission, accepted: Accepted, history_length: int | None, form: LiveTextForm | None = None
    ) -> StoredTask:
        """Return the task at the time of the message's acceptance, for a reader of the events in a form, if given."""
        header = accepted.header
        if form is not None and accepted.replayed:
            return shortened(await self._watch(header.id, header.owner, form), history_length)
        if accepted.replayed or not submission.new:
            return await self._load(header.id, header.owner, history_length)
        message = stored.with_ids(submission.body, header.id, header.context_id)
        return StoredTask(header, None if history_length == 0 else [message], None)

    # --- tasks ------------------------------------------------------------------------------------------------------

    async def get_task(self, call: Call, params: GetParams) -> StoredTask:
        """Return the current task (§3.1.3)."""
        task = await self._backend.reader.load(params.id, call.caller.owner, history_length=params.history_length)
        if task is None:
            if self._approvers is None:
                raise TaskNotFoundError
            return await self._approvers.view(call, params.id)
        return task if self._approvers is None else await self._approvers.own_view(call, task)

    def _own(self, call: Call, task: StoredTask) -> StoredTask:
        """Return an own task in the answer to another operation than GetTask, which asks no function."""
        return task if self._approvers is None else self._approvers.by_scope_view(call, task)

    async def list_tasks(self, call: Call, params: ListParams) -> TaskList:
        """Return one page of the caller's tasks, and of tasks that the caller may decide about (§3.1.4)."""
        query = TaskQuery(
            owner=call.caller.owner,
            context_id=params.context_id,
            state=params.state,
            since=params.since,
            page_size=params.page_size,
            max_bytes=self._limits.page,
            history_length=params.history_length,
            include_artifacts=params.include_artifacts,
        )
        if self._lists is not None and self._lists.covers(call, query):
            page, following = await self._lists.page(call, query, params.page_token)
            return TaskList(page, params.page_size, following)
        if params.page_token is not None:
            query = replace(query, before=task_before(params.page_token, query))
        page = await self._backend.reader.list(query)
        if self._approvers is not None:
            page = page._replace(tasks=[self._own(call, task) for task in page.tasks])
        return TaskList(page, params.page_size, '' if page.next is None else task_token(page.next, query))

    async def cancel_task(self, call: Call, params: CancelParams) -> StoredTask:
        """Cancel a task. Return after its run and its async tools have stopped (§3.1.5)."""
        if params.metadata:
            check_metadata(params.metadata, 'metadata', self._limits)
        who = {'caller': call.caller.id or None, 'tenant': call.caller.tenant or None}
        return await self.cancel(params.id, call.caller.owner, call.correlation_id, lambda _: who)

    async def cancel(
        self, task_id: str, owner: str | None, correlation_id: str, facts: Callable[[TaskHeader], Mapping[str, Fact]]
    ) -> StoredTask:
        """Cancel a task of an owner, or of any owner for None. `facts` returns the canceller for the audit log."""
        grace = self._limits.cancel_grace
        return await canceled(self._backend, task_id, owner, grace=grace, correlation_id=correlation_id, facts=facts)

    async def subscribe_to_task(
        self, call: Call, params: SubscribeParams, on_drop: Callable[[], object]
    ) -> EventStream:
        """Return the task and its events until its end, or only the events after the client's last event (§3.1.6)."""
        owner, ends = call.caller.owner, TERMINAL | params.also_ends
        await self._check_seen(params.id, call)
        form = self._form_for(call)
        subscription = self._backend.events.subscribe(params.id, on_drop, live=form.pieces)
        try:
            task = await self._watch(params.id, owner, form)
            if params.last_event_id is None:
                if not params.ended_too:
                    check_subscribe(task.header)
            elif await self._backend.events.has(params.id, params.last_event_id):
                return self._stream(call, task, subscription, ends, form, after=params.last_event_id)
        except BaseException:
            subscription.close()
            raise
        return self._stream(call, task, subscription, ends, form)

    def _form_for(self, call: Call) -> LiveTextForm:
        """Return the form of live text for a caller."""
        return LiveTextForm.ASKED if call.live else FORMS.get(self._form, LiveTextForm.WHOLE)

    def _stream(
        self,
        call: Call,
        task: StoredTask,
        subscription: Subscription,
        ends: frozenset[TaskState],
        form: LiveTextForm,
        *,
        after: int | None = None,
    ) -> EventStream:
        """Return the stream of a task: a snapshot and the events after it, or only the events after `after`."""
        header = task.header
        first, start = (self._own(call, task), header.last_event) if after is None else (None, after)
        if header.state in ends and start >= header.last_event:
            subscription.close()
            return EventStream(header.id, first, None, ends)
        subscription.start(start)
        seen = None if self._approvers is None else partial(self._approvers.by_scope_event, call)
        return EventStream(header.id, first, subscription, ends, form, seen)

    async def _check_seen(self, task_id: str, call: Call) -> None:
        """Check that the caller may read the task, before a run or another process counts the caller as a reader."""
        if await self._backend.reader.load(task_id, call.caller.owner, history_length=0, artifacts=False) is not None:
            return
        if self._approvers is not None and await self._approvers.find(call, task_id) is not None:
            raise UnsupportedOperationError('An approver reads the task with GetTask, and does not get its events.')
        raise TaskNotFoundError

    # --- push notifications -----------------------------------------------------------------------------------------

    async def create_push_config(self, call: Call, params: CreatePushParams) -> Registered:
        """Have a task's events from now on delivered to a webhook (§3.1.7)."""
        registration = registration_of(self._push)
        task_id = params.task_id
        config = registration.config(params.target, call.caller, call.dialect, params.field)
        await registration.configs.create(task_id, call.caller.owner, config, limit=registration.limit)
        return registration.registered(task_id, config, call.correlation_id)

    async def get_push_config(self, call: Call, params: PushParams) -> Registered:
        """Return a webhook of a task (§3.1.8)."""
        registration = registration_of(self._push)
        task_id = params.task_id
        config = await registration.find(task_id, call.caller, params.id)
        return registration.registered(task_id, config, call.correlation_id)

    async def list_push_configs(self, call: Call, params: ListPushParams) -> tuple[list[Registered], str]:
        """Return webhooks of a task, and the token of the next page (§3.1.9)."""
        registration = registration_of(self._push)
        task_id = params.task_id
        configs = await registration.configs.list(task_id, call.caller.owner)
        page, following = registration.page_of(configs, task_id, params.page_size, params.page_token)
        return [registration.registered(task_id, config, call.correlation_id) for config in page], following

    async def delete_push_config(self, call: Call, params: PushParams) -> None:
        """Stop deliveries to a webhook (§3.1.10)."""
        registration = registration_of(self._push)
        await registration.configs.delete(params.task_id, call.caller.owner, params.id)

    async def _watch(self, task_id: str, owner: str | None, form: LiveTextForm) -> StoredTask:
        task = await self._backend.reader.watch(task_id, owner, live=form.pieces)
        if task is None:
            raise TaskNotFoundError
        return task


def shortened(task: StoredTask, history_length: int | None) -> StoredTask:
    """Return a whole task as `TaskReader.load` returns it: with so many of the newest messages."""
    if history_length is None or task.history is None:
        return task
    return task._replace(history=task.history[-history_length:] if history_length else None)
