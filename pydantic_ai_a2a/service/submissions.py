"""The checks of a client's message without storage, and the conversion to the stored form."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic_core import from_json, to_json

from .. import chains
from ..audit import Fact, audit
from ..auth.operator_functions import allows
from ..conversion import asking, pending
from ..conversion.edited_arguments import as_run
from ..conversion.inbound import check_types
from ..conversion.limits import check_limits, check_metadata, check_names
from ..conversion.pending import Kind, Pending, PendingCall
from ..conversion.schemas import CLIENT_TOOLS_FIELD, CLIENT_TOOLS_URI, MARK, ClientTools, inherited, request_fields
from ..errors import (
    A2AError,
    InvalidParamsError,
    OverloadedError,
    PermissionDeniedError,
    PushNotificationNotSupportedError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from ..protocol import stored
from ..protocol.fields import LIVE
from ..settings import LONG, Approvals, Approvers, Settings
from ..store.ports import Answer, Pause, Submission, TaskReader
from ..types import (
    Call,
    Caller,
    Message,
    SendParams,
    StoredTask,
    TaskHeader,
    WaitingCall,
    WaitingTask,
    load_caller,
    sender_of,
)

if TYPE_CHECKING:
    from ..push.registration import Registration


Schema: TypeAlias = dict[str, Any]
"""A JSON Schema."""

_MEMBERS = (
    ('metadata', b'metadata'),
    ('extensions', b'extensions'),
    ('reference_task_ids', b'referenceTaskIds'),
)
"""Optional members of a message besides the parts, with the names in the stored form."""


class Submissions:
    """Converts the messages of clients to the stored form, after all checks without storage.

    Args:
        settings: Limits of messages, and messages to working tasks.
        check_content: Refuses messages that the agent does not take.
        check_output: Refuses output modes that the agent does not return, or that data by the client's schema has not.
        client_schema: Returns the JSON Schema that a message wants for its answer.
        accepting: Returns False while the server shuts down.
        now: Returns the time (ms).
        push: The webhooks of clients; None without push notifications.
        client_tools: Reads the tools of clients; None if clients cannot declare tools.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        check_content: Callable[[Message], object],
        check_output: Callable[[Sequence[str], Schema | None], object],
        client_schema: Callable[[Message], Schema | None],
        accepting: Callable[[], bool],
        now: Callable[[], int],
        push: Registration | None,
        client_tools: ClientTools | None,
    ) -> None:
        self._limits = settings.limits
        self._only_waiting = settings.messages.while_working == 'reject'
        self._steers = settings.messages.while_working == 'steer'
        self._client_tools = client_tools
        self._check_content = check_content
        self._check_output = check_output
        self._client_schema = client_schema
        self._accepting = accepting
        self._now = now
        self._push = push

    async def check(self, call: Call, params: SendParams) -> Submission:
        """Check a message and convert it. A long message is converted outside the event loop."""
        if call.size < LONG:
            return self._submission(call, params)
        return await asyncio.to_thread(self._submission, call, params)

    async def check_direct(self, call: Call, params: SendParams) -> Submission:
        """Check a message that is answered with a message, like `check`.

        Raises:
            InvalidParamsError: The message declares tools, whose calls would wait in a task.
        """
        if self._client_tools is not None and CLIENT_TOOLS_URI in (params.message.get('metadata') or {}):
            raise InvalidParamsError.of(
                CLIENT_TOOLS_FIELD, 'declares tools, but the agent answers this message without a task'
            )
        return await self.check(call, params)

    def _submission(self, call: Call, params: SendParams) -> Submission:
        push_config, push_url = None, None
        if params.push_config is not None:
            registration = registration_of(self._push)
            target = params.push_config
            push_config = registration.config(target, call.caller, call.dialect, params.push_field)
            push_url = target.url
        if not self._accepting():
            raise OverloadedError('The server is shutting down; try again later.', headers={'Retry-After': '1'})
        message, declares_tools = params.message, False
        if 'metadata' in message:
            message = without_marks(message, message['metadata'])
        parts = stored.dump_parts(message['parts'])
        size = len(parts)
        check_limits(message, size, self._limits)
        if self._client_tools is not None:
            declares_tools = self._client_tools.check(message)
        if params.metadata:
            check_metadata(params.metadata, 'metadata', self._limits)
        answers_calls = asking.place_of_answers(message) is not None
        if answers_calls and 'task_id' not in message:
            raise InvalidParamsError.of('message.taskId', 'must be the id of the task that waits for these answers')
        if answers_calls:
            check_types(message)
        else:
            self._check_content(message)
        schema = self._client_schema(message) if 'metadata' in message else None
        if params.accepted_output_modes:
            check_names(params.accepted_output_modes, 'configuration.acceptedOutputModes', self._limits)
            self._check_output(params.accepted_output_modes, schema)
        task_id, context_id = message.get('task_id'), message.get('context_id')
        return Submission(
            owner=call.caller.owner,
            anonymous=call.caller.anonymous,
            message_id=message['message_id'],
            digest=stored.digest(message, parts, params.metadata, params.accepted_output_modes, push_url),
            body=stored.message(message['message_id'], b'ROLE_USER', parts, _members(message)),
            task_id=task_id or stored.new_id(),
            new=task_id is None,
            context_id=context_id or (stored.new_id() if task_id is None else None),
            request=_request(params, call, schema),
            traceparent=call.traceparent,
            dialect=call.dialect,
            at=self._now(),
            size=size,
            unread_limit=self._limits.messages,
            push=push_config,
            push_limit=0 if self._push is None else self._push.limit,
            answers_calls=answers_calls,
            # The tools of a run do not change, so a message with tools cannot enter the run.
            only_waiting=self._only_waiting or (declares_tools and self._steers),
        )


def registration_of(push: Registration | None) -> Registration:
    """Return the webhooks of clients.

    Raises:
        PushNotificationNotSupportedError: The server has no push notifications.
    """
    if push is None:
        raise PushNotificationNotSupportedError
    return push


def _members(message: Mapping[str, Any]) -> bytes:
    members = b''
    for name, wire_name in _MEMBERS:
        if name in message and message[name]:  # noqa: RUF019 - `get` is a call for each
            members += b',"%s":%s' % (wire_name, to_json(message[name]))
    return members


def _request(params: SendParams, call: Call, schema: Schema | None) -> bytes | None:
    """Return the stored form of the request, for later runs."""
    request: dict[str, Any] = {}
    if params.accepted_output_modes:
        request['acceptedOutputModes'] = params.accepted_output_modes
    if params.metadata:
        request['metadata'] = params.metadata
    if params.extensions:
        request['extensions'] = params.extensions
    if call.live and params.return_immediately:  # the client will follow the task: the run does not wait for the reader
        request[LIVE] = True
    if call.kept is not None:
        request['call'] = call.kept
    if depth := chains.depth.get():
        request['depth'] = depth
    if schema is not None:
        request |= request_fields(schema)
    return to_json(request) if request else None


# --- answers of clients to waiting tasks, and the audit records of the answers ----------------------------------------

_MARKS = frozenset({'answeredBy', 'resumed'})
"""Names in message metadata for the server's own marks: the sender of an answer, and a call of `resume_task`."""


def answered(
    submission: Submission,
    call: Call,
    message: Message,
    pause: Pause,
    *,
    kinds: Kinds = None,
    rules: Approvals,
    late: bool,
    limit: int,
) -> tuple[Submission, Pending | None]:
    """Return a message as the answer to a waiting task, and the answered calls for the audit log, if any.

    The error is kept with a message that does not answer: a repeat of an accepted message must still find its task.

    Args:
        submission: The message.
        call: The call with the message.
        message: The decoded message.
        pause: The current pause of the task.
        kinds: Kinds of calls that the caller may answer; None for all kinds.
        rules: Rules for answers of clients.
        late: True if the message was accepted before the task's current pause.
        limit: Maximum number of repeated questions while the task waits.
    """
    if pause.request is not None and MARK in pause.request:
        submission = replace(submission, request=inherited(submission.request, pause.request))
    if pause.pending is None:
        if late and not submission.answers_calls:
            return replace(submission, refusal=asking.too_late()), None
        return replace(submission, answer=Answer(pause=pause, pending=None)), None
    before = pending.load(pause.pending)
    own = before if kinds is None else before.only(kinds)
    readable = before if own is before or submission.owner == call.caller.owner else own
    if rules.approvers is not None:
        rules = asking.rules_of(rules, first=pause.first)
    try:
        if kinds is not None:
            _check_allowed(call, submission.task_id, message, before, kinds)
        after = asking.answered(own, message, by=call.caller.id, rules=rules, late=late, limit=limit, readable=readable)
    except A2AError as error:
        return replace(submission, refusal=error), None
    after = before if after is own else replace(after, calls=before.calls)
    again = after.asked_again > before.asked_again
    rest = None
    if after.open or again:
        parts = asking.shown(after, rules, submission.task_id, again=again)
        ids = b',' + stored.ids(submission.task_id, pause.context_id)
        rest = stored.message(stored.new_id(), b'ROLE_AGENT', stored.dump_parts(parts), ids)
    answer = Answer(pause=pause, pending=pending.dump(after), rest=rest, again=again)
    if again or after is before:
        return replace(submission, answer=answer), None
    by: dict[str, str] = {'id': call.caller.id} if call.caller.id else {}
    if call.caller.tenant:
        by['tenant'] = call.caller.tenant
    return replace(submission, answer=answer, body=with_mark(submission.body, answeredBy=by)), after


def _check_allowed(call: Call, task_id: str, message: Message, pending_calls: Pending, kinds: Collection[Kind]) -> None:
    """Refuse answers to calls that the caller may not answer.

    Answers to other calls than those that wait, such as to an earlier pause, are left to `asking.answered`.

    Args:
        call: The call with the message.
        task_id: The waiting task.
        message: The message with the answers.
        pending_calls: All calls of the task.
        kinds: Kinds of calls that the caller may answer.
    """
    own, ids = pending_calls.only(kinds), asking.answered_ids(message)
    known = {item.shown_id for item in pending_calls.calls}
    if kinds and ids and ids.isdisjoint(known):
        return
    foreign = known - {item.shown_id for item in own.calls}
    if (pending_calls.open and not own.open) or not foreign.isdisjoint(ids):
        raise forbidden_answer(call, task_id)


def without_marks(message: Message, metadata: Mapping[str, Any]) -> Message:
    """Return a client's message without the metadata reserved for the server."""
    if _MARKS.isdisjoint(metadata):
        return message
    return {**message, 'metadata': {name: value for name, value in metadata.items() if name not in _MARKS}}


def with_mark(body: bytes, **mark: Any) -> bytes:
    """Return a stored message with a mark of the server in its metadata, under a name of `_MARKS`."""
    message = from_json(body)
    return to_json({**message, 'metadata': {**message.get('metadata', {}), **mark}})


def audit_answers(call: Call, task_id: str, owner: str, after: Pending) -> None:
    """Record the calls that a caller has decided, the calls with changed arguments, and the owner of another's task."""
    decisions: dict[str, str] = {}
    changed: list[str] = []
    for item in after.calls:
        decided = after.answers.get(item.id)
        if decided is not None and decided.by == call.caller.id:
            decisions[item.id] = decided.decision
            if decided.args not in (None, item.args):
                changed.append(item.id)
    facts: dict[str, Fact] = {'changed_arguments': changed} if changed else {}
    if owner != call.caller.owner:
        facts['owner'] = Caller.of(owner).id
    audit(
        'calls-answered',
        correlation_id=call.correlation_id,
        task=task_id,
        caller=call.caller.id,
        tenant=call.caller.tenant or None,
        decisions=decisions,
        **facts,
    )


# --- approvers --------------------------------------------------------------------------------------------------------
# Callers that decide about the approvals of other owners' tasks, and see nothing else of the tasks.

Kinds: TypeAlias = Collection[Kind] | None
"""The kinds of calls that a caller may answer; None for all kinds."""

Changed: TypeAlias = Mapping[str, dict[str, Any]]
"""Arguments of approvals in place of the model's, by the id of the call."""

_APPROVAL: frozenset[Kind] = frozenset[Kind]({'approval'})
_OTHERS: frozenset[Kind] = frozenset[Kind]({'question', 'external', 'authorization'})
_DECIDED = (
    'No call of the task waits for an approval: another caller has decided, or the task has gone on without the call.'
)


class ApproverAccess:
    """Applies `Approvals.approvers` to callers and tasks.

    Args:
        rule: The value of `Approvals.approvers`.
        reader: Reads tasks of all owners.
        approvals: Rules for answers of clients.
    """

    def __init__(self, rule: Approvers, reader: TaskReader, approvals: Approvals) -> None:
        self._rule = rule
        self._reader = reader
        self._approvals = approvals

    async def kinds(self, call: Call, owner: str, task_id: str, pause: Pause) -> Kinds:
        """Return the kinds of calls that a caller may answer in a waiting task of an owner."""
        approves = await self._may_approve(call, owner, task_id, pause)
        if owner != call.caller.owner:
            return _APPROVAL if approves else ()
        return None if approves else _OTHERS

    async def find(self, call: Call, task_id: str) -> tuple[TaskHeader, Pause | None] | None:
        """Return a task of another owner with its pause, if the caller is an approver of the task."""
        task = await self._reader.load(task_id, None, history_length=0, artifacts=False)
        if task is None or task.header.owner == call.caller.owner:
            return None
        pause = await self._pause(task.header)
        allowed = await self._may_approve(call, task.header.owner, task_id, pause)
        return (task.header, pause) if allowed else None

    def message(self, task_id: str, params: SendParams) -> SendParams:
        """Return the message of an approver without everything but the decision.

        Raises:
            InvalidParamsError: The message has a webhook, which would get the events of the task.
        """
        if params.push_config is not None:
            raise InvalidParamsError.of(params.push_field, 'only the owner of a task can add a webhook: leave it out')
        message = params.message
        decision = Message(role='user', parts=message['parts'], message_id=message['message_id'], task_id=task_id)
        return SendParams(message=decision)

    def submission(self, submission: Submission, header: TaskHeader, pause: Pause | None) -> Submission:
        """Return the message of an approver as a message to the owner's task. The run keeps the request of the owner.

        If no call waits for an approval, the message gets the error as its refusal, because a repeated message still
        gets its task.
        """
        submission = replace(submission, owner=header.owner, anonymous=False)
        if pause is None or _waiting(pause) is None:
            return replace(submission, refusal=UnsupportedOperationError(_DECIDED))
        return replace(submission, request=pause.request, pause=pause.number)

    async def view(self, call: Call, task_id: str) -> StoredTask:
        """Return the state and the waiting approvals of a task of another owner, without all else of the task.

        Raises:
            TaskNotFoundError: The task does not exist, or the caller is no approver.
        """
        found = await self.find(call, task_id)
        if found is None:
            raise TaskNotFoundError
        return self._shown(*found)

    async def after(self, header: TaskHeader) -> StoredTask:
        """Return the approver's view of a task after a decision: the state, and the approvals that still wait."""
        return self._shown(header, await self._pause(header))

    def _shown(self, header: TaskHeader, pause: Pause | None) -> StoredTask:
        message = None
        if waiting := _waiting(pause):
            assert pause is not None, 'its calls wait'
            parts = asking.shown(waiting, asking.rules_of(self._approvals, first=pause.first), header.id)
            name = f'{header.id}-{header.last_event}'
            ids = b',' + stored.ids(header.id, header.id)
            message = stored.message(name, b'ROLE_AGENT', stored.dump_parts(parts), ids)
        # The name of the context is the owner's text.
        header = replace(header, context_id=header.id, status_message=message, metadata=None)
        return StoredTask(header, None, None)

    async def _pause(self, header: TaskHeader) -> Pause | None:
        return await self._reader.pause(header.id, header.owner)

    async def decided(self, submission: Submission, call: Call, pause: Pause, answered: Pending) -> Submission:
        """Return a message with decisions, or its refusal if the rule forbids the arguments that the message changes.

        Decisions alone do not change who has sent the message of the run: the run keeps its request.

        Args:
            submission: The message.
            call: The call with the message.
            pause: The pause before the message.
            answered: The calls of the pause with the answers of the message.
        """
        assert pause.pending is not None
        before = pending.load(pause.pending)
        new = {call_id: answer for call_id, answer in answered.answers.items() if call_id not in before.answers}
        changed = {call_id: answer.args for call_id, answer in new.items() if answer.args is not None}
        owner, task_id = submission.owner, submission.task_id
        if changed and not await self._may_approve(call, owner, task_id, pause, changed):
            return replace(submission, answer=None, refusal=forbidden_answer(call, task_id))
        sender = _sender(pause, before)
        if sender in (None, call.caller) or any(answer.decision not in ('approve', 'deny') for answer in new.values()):
            return submission
        return replace(submission, request=pause.request, credential=None)

    async def _may_approve(
        self, call: Call, owner: str, task_id: str, pause: Pause | None, changed: Changed | None = None
    ) -> bool:
        caller, task_owner = call.caller, Caller.of(owner)
        if caller.tenant != task_owner.tenant:
            return False
        if isinstance(self._rule, str):
            return self._rule in caller.scopes
        waiting = _waiting(pause)
        sender = _sender(pause, waiting) or task_owner
        calls = [_call(item, changed or {}) for item in waiting.open] if waiting else []
        task = WaitingTask(id=task_id, owner=task_owner, caller=sender, calls=calls)
        name = 'Approvals.approvers'
        return await call.request.ask(name, allows(name, self._rule, caller, task))


def forbidden_answer(call: Call, task_id: str) -> PermissionDeniedError:
    """Return the refusal of an answer to calls that the caller may not answer, after a line in the audit log."""
    caller = call.caller
    tenant = caller.tenant or None
    audit('forbidden', correlation_id=call.correlation_id, task=task_id, caller=caller.id, tenant=tenant)
    return PermissionDeniedError(
        'The caller may not answer this call. An approver decides about approvals, and the owner of the task'
        ' answers questions.'
    )


def _call(call: PendingCall, changed: Changed) -> WaitingCall:
    """Return a call as it would run: with changed arguments, and with the defaults of the tool."""
    args = changed.get(call.id, call.args)
    return WaitingCall(call.id, call.tool, None if args is None else as_run(args, call.schema or {}))


def _sender(pause: Pause | None, waiting: Pending | None) -> Caller | None:
    """Return the sender of the message whose run has paused; None if none is stored."""
    fields = None if waiting is None else waiting.caller
    if fields is None and pause is not None:
        fields = sender_of(pause.request)
    return None if fields is None else load_caller(fields)


def _waiting(pause: Pause | None) -> Pending | None:
    """Return the approvals that wait for a decision; None without such an approval."""
    if pause is None or pause.pending is None:
        return None
    waiting = pending.load(pause.pending).only(_APPROVAL)
    return waiting if waiting.open else None
