"""What a task waits for: the calls of a paused run, as they are stored and as clients are shown them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, TypeAlias

from pydantic import TypeAdapter
from pydantic_ai import ModelRetry
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.tools import (
    DeferredToolApprovalResult,
    DeferredToolRequests,
    DeferredToolResults,
    ToolApproved,
    ToolDenied,
)
from pydantic_core import to_json

from ..types import Part, TaskState
from .states import MARK, AuthRequired, Rejected, State

__all__ = (
    'MEDIA_TYPE',
    'Answer',
    'Asked',
    'Kind',
    'Pending',
    'PendingCall',
    'ask',
    'asked_by',
    'dump',
    'load',
    'results',
    'shown',
)

MEDIA_TYPE = 'application/vnd.pydantic-ai.pending-calls+json'
"""Of the data part that lists what a task waits for; `metadata` names it too, for versions without media types."""

Kind: TypeAlias = Literal['approval', 'question', 'external', 'authorization']
"""What a pending call waits for."""


@dataclass(frozen=True, kw_only=True)
class PendingCall:
    """A call of a tool that waits for somebody outside."""

    id: str
    kind: Kind
    tool: str
    text: str
    """What a person reads."""
    args: dict[str, Any] | None = None
    """Its arguments; None where clients may not see them."""
    metadata: dict[str, Any] | None = None
    """What the tool says about the call: shown to clients, and given to the tool with the answer."""
    schema: dict[str, Any] | None = None
    """JSON Schema of the arguments that an approval may give instead, or of the answer to a question; None: any."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What was decided about one call."""

    decision: Literal['approve', 'deny', 'result', 'retry']
    args: dict[str, Any] | None = None
    """Approved with these instead of the model's."""
    reason: str | None = None
    """Why it was denied, or what has to be different."""
    result: Any = None
    by: str = ''
    """Id of the caller who decided it; empty for an anonymous one."""


@dataclass(frozen=True, kw_only=True)
class Pending:
    """What a task waits for, and what of it is answered."""

    calls: Sequence[PendingCall] = ()
    answers: Mapping[str, Answer] = field(default_factory=dict[str, Answer])
    """By the id of the call."""
    schema: dict[str, Any] | None = None
    """JSON Schema of the data that answers a question which no call waits with."""

    @property
    def open(self) -> list[PendingCall]:
        """The calls that somebody has to decide about; those that wait for credentials are just tried again."""
        return [call for call in self.calls if call.id not in self.answers and call.kind != 'authorization']


@dataclass(frozen=True, kw_only=True)
class Asked:
    """How a run ends that waits for its client, or declines."""

    state: TaskState
    parts: Sequence[Part]
    """Of the status message."""
    pending: Pending | None = None


@cache
def _pending_ta() -> TypeAdapter[Pending]:
    return TypeAdapter(Pending)


def dump(pending: Pending) -> bytes:
    """Write what a task waits for."""
    return _pending_ta().dump_json(pending, exclude_none=False)


def load(body: bytes) -> Pending:
    """Read what `dump` wrote."""
    return _pending_ta().validate_json(body)


def ask(
    deferred: DeferredToolRequests,
    schemas: Mapping[str, dict[str, Any]],
    *,
    order: Sequence[str],
    hidden: Collection[str] = (),
) -> Asked:
    """What a run with deferred calls waits for.

    Args:
        deferred: The calls.
        schemas: JSON Schemas of the parameters of the tools that they call, by name.
        order: Ids of the calls in the order in which the model made them.
        hidden: Names of the tools whose arguments clients are not shown.
    """
    places = {call_id: place for place, call_id in enumerate(order)}
    calls = [
        _call(call, deferred, None if call.tool_name in hidden else call.args_as_dict(), schemas.get(call.tool_name))
        for call in sorted((*deferred.approvals, *deferred.calls), key=lambda call: places[call.tool_call_id])
    ]
    pending = Pending(calls=calls)
    state: TaskState = 'input-required' if pending.open else 'auth-required'
    return Asked(state=state, parts=shown(pending), pending=pending)


def asked_by(state: State) -> Asked:
    """How a run ends that came to a state of the agent's choice."""
    if isinstance(state, Rejected):
        return Asked(state='rejected', parts=[_text(state.reason)])
    if isinstance(state, AuthRequired):
        return Asked(state='auth-required', parts=[_text(state.message), *_authorization(state.schemes, state.url)])
    if state.schema is None:
        return Asked(state='input-required', parts=[_text(state.question)])
    schema = dict(state.schema)
    parts = [_text(state.question), _data({'pending': [], 'schema': schema})]
    return Asked(state='input-required', parts=parts, pending=Pending(schema=schema))


def shown(pending: Pending) -> list[Part]:
    """What clients are shown of it: a text for people, and one data part for programs."""
    waiting = pending.open or pending.calls
    text = '\n'.join(call.text for call in waiting)
    return [_text(text), _data({'pending': [_shown(call) for call in waiting]})]


def results(pending: Pending) -> DeferredToolResults:
    """What the run goes on with, once all of it is answered.

    Raises:
        KeyError: Something is not.
    """
    approvals: dict[str, bool | DeferredToolApprovalResult] = {}
    calls: dict[str, Any] = {}
    for call in pending.calls:
        answer = Answer(decision='approve') if call.kind == 'authorization' else pending.answers[call.id]
        if answer.decision == 'approve':
            approvals[call.id] = ToolApproved(override_args=answer.args)
        elif answer.decision == 'deny':
            approvals[call.id] = ToolDenied(answer.reason) if answer.reason else ToolDenied()
        else:
            calls[call.id] = answer.result if answer.decision == 'result' else ModelRetry(answer.reason or '')
    return DeferredToolResults(
        calls=calls,
        approvals=approvals,
        metadata={call.id: call.metadata for call in pending.calls if call.metadata},
        answered_by={call_id: answer.by for call_id, answer in pending.answers.items() if answer.by},
    )


def _call(
    call: ToolCallPart, deferred: DeferredToolRequests, args: dict[str, Any] | None, schema: dict[str, Any] | None
) -> PendingCall:
    kind: Kind = deferred.kind(call.tool_call_id)
    metadata = {**deferred.metadata.get(call.tool_call_id, {})}
    said: dict[str, Any] = metadata.pop(MARK, {})
    called = call.tool_name if args is None else f'{call.tool_name} {to_json(args).decode()}'
    match kind:
        case 'approval' if 'message' in said:
            kind, text, schema = 'authorization', said['message'], None
            metadata |= {name: said[name] for name in ('schemes', 'url') if said[name]}
        case 'approval':
            text = f'May I call {called}?'
        case 'question':
            text, schema = said.get('question') or f'Please answer {called}.', said.get('schema')
        case _:
            text, schema = f'Waiting for the result of {called}.', None
    return PendingCall(
        id=call.tool_call_id, kind=kind, tool=call.tool_name, text=text, args=args, metadata=metadata, schema=schema
    )


def _shown(call: PendingCall) -> dict[str, Any]:
    item: dict[str, Any] = {'id': call.id, 'kind': call.kind, 'tool': call.tool, 'text': call.text}
    if call.args is not None:
        item['args'] = call.args
    if call.metadata:
        item['metadata'] = call.metadata
    return item if call.kind == 'authorization' else item | {'answerSchema': _answer_schema(call)}


def _answer_schema(call: PendingCall) -> dict[str, Any]:
    """JSON Schema of one member of `callAnswers`; references in it are to its own `$defs`."""
    own = {name: value for name, value in (call.schema or {}).items() if name != '$defs'}
    defs = {'$defs': call.schema['$defs']} if call.schema and '$defs' in call.schema else {}
    if call.kind == 'approval':
        choices = [_choice(call.id, 'approve', args=own or {'type': 'object'}), _choice(call.id, 'deny', reason=_TEXT)]
    else:
        choices = [_choice(call.id, 'result', 'result', result=own), _choice(call.id, 'retry', 'reason', reason=_TEXT)]
    return {'oneOf': choices, **defs}


_TEXT = {'type': 'string', 'minLength': 1}


def _choice(call_id: str, decision: str, *required: str, **properties: Any) -> dict[str, Any]:
    fixed = {'id': {'const': call_id}, 'decision': {'const': decision}}
    return {
        'type': 'object',
        'properties': fixed | properties,
        'required': ['id', 'decision', *required],
        'additionalProperties': False,
    }


def _authorization(schemes: Sequence[str], url: str | None) -> list[Part]:
    said = {name: value for name, value in (('schemes', [*schemes]), ('url', url)) if value}
    return [_data({'pending': [], 'authorization': said})] if said else []


def _text(text: str) -> Part:
    return Part(text=text, media_type='text/plain')


def _data(data: dict[str, Any]) -> Part:
    return Part(data=data, media_type=MEDIA_TYPE, metadata={'type': MEDIA_TYPE})
