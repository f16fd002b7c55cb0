"""The status message of a waiting task: a text for people, and a data part for programs.

The agent card declares the data part as an A2A extension.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any, Literal, cast
from uuid import uuid4

from pydantic_ai.exceptions import UnexpectedModelBehavior
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.tools import DeferredToolRequests
from pydantic_core import from_json

from ..errors import InvalidParamsError
from ..settings import Approvals
from ..types import AgentExtension, Message, Part, TaskState, dump_json, frozen
from .edited_arguments import fault_of
from .limits import MOST_LEVELS, deeper_than
from .pending import MARK, AuthRequired, CallAnswer, Kind, Pending, PendingCall, Rejected, State
from .remote_calls import PRIVATE, calls_for_clients
from .schemas import Problem, problem

URI = 'https://pypi.org/project/pydantic-ai-a2a/#pending-calls-v1'
"""Name of the extension, and key of its data in the metadata of messages. Data with another meaning gets another
URI."""

EXTENSION = AgentExtension(
    uri=URI,
    description='A task that waits for its client lists the answers it needs in a data part, with their JSON Schema.',
)
"""Declaration of the extension on agent cards."""

MEDIA_TYPE = 'application/vnd.pydantic-ai.pending-calls+json'
"""Media type of the data part with the pending calls, also in `metadata` for versions without media types."""


@frozen
class Asked:
    """The end of a run with pending calls, or of a declining run."""

    state: TaskState
    parts: Sequence[Part]
    """Parts of the status message."""
    pending: Pending | None = None


def ask(
    deferred: DeferredToolRequests,
    schemas: Mapping[str, dict[str, Any]],
    *,
    order: Sequence[str],
    changed: Mapping[str, dict[str, Any]],
    shown_calls: Collection[str] = (),
    rules: Approvals,
    task_id: str,
    caller: dict[str, Any] | None = None,
) -> Asked:
    """Return the end of a run with deferred calls.

    Args:
        deferred: The calls.
        schemas: JSON Schemas of the called tools' parameters, by name.
        order: Ids of the calls in the order of the model.
        changed: Arguments from earlier approvals in place of the model's arguments, by the id of the call.
        shown_calls: Ids of the calls in earlier progress events.
        rules: Rules for the answers of clients.
        task_id: The task.
        caller: The sender of the message whose run made the calls; None without a stored sender.

    Raises:
        UnexpectedModelBehavior: Two calls have the same id, so an answer to one of them would answer both; or a call is
            nested too deeply.
    """
    places = {call_id: place for place, call_id in enumerate(order)}
    calls = [
        call
        for part in sorted((*deferred.approvals, *deferred.calls), key=lambda part: places[part.tool_call_id])
        for call in calls_for_clients(
            part,
            _call(
                part,
                deferred,
                schemas.get(part.tool_name),
                changed=changed.get(part.tool_call_id),
                is_hidden=part.tool_name in rules.hide_arguments,
            ),
            rules.hide_arguments,
        )
    ]
    if len({call.id for call in calls}) < len(calls):  # the model may have given a call the id of a remote call
        raise UnexpectedModelBehavior('Two waiting calls have the same id.')
    waiting = dict.fromkeys(call.local_id or call.id for call in calls)
    shown_before = [call_id for call_id in waiting if call_id in shown_calls]
    new = [replace(call, answer_id=uuid4().hex) for call in calls]
    pending = Pending(calls=new, shown_calls=shown_before, caller=caller)
    state: TaskState = 'input-required' if pending.open else 'auth-required'
    return Asked(state=state, parts=shown(pending, rules, task_id), pending=pending)


def asked_by(state: State, rules: Approvals, task_id: str) -> Asked:
    """Return the end of a run that came to a state of the agent's choice."""
    if isinstance(state, Rejected):
        return Asked(state='rejected', parts=[_text(state.reason)])
    if isinstance(state, AuthRequired):
        return Asked(state='auth-required', parts=[_text(state.message), *_authorization(state.schemes, state.url)])
    if state.schema is None:
        return Asked(state='input-required', parts=[_text(state.question)])
    pending = Pending(schema=dict(state.schema), question=state.question)
    return Asked(state='input-required', parts=shown(pending, rules, task_id), pending=pending)


def shown(pending: Pending, rules: Approvals, task_id: str, *, again: bool = False) -> list[Part]:
    """Return the parts for clients: a text for people, and a data part for programs.

    Args:
        pending: The pending calls and questions.
        rules: Rules for the answers of clients.
        task_id: The task.
        again: True after an unclear answer of the client.
    """
    waiting = pending.open or pending.calls
    questions = [call.text for call in waiting] if pending.calls else [pending.question]
    lines = [*(['The answer is not clear.'] if again else []), *questions, to_write(pending, rules)]
    data: dict[str, Any] = {'pending': [_shown(call, rules) for call in waiting]}
    if pending.schema is not None:
        data['schema'] = pending.schema
    if pending.open:
        data['messageSchema'] = _message_schema(task_id, *_answers_schema(pending.open, rules))
    elif pending.schema is not None:
        data['messageSchema'] = _message_schema(task_id, *_bare(pending.schema))
    return [_text('\n'.join(line for line in lines if line)), _data(data)]


def rules_of(rules: Approvals, *, first: bool) -> Approvals:
    """Return the rules for a pause: with approvers, words approve only in the first pause of a task.

    Words have no id. The words of an approver may be about an earlier call, which another approver has decided.
    """
    if first or rules.approvers is None or rules.plain_text_answers == 'none':
        return rules
    return replace(rules, plain_text_answers='deny')


def to_write(pending: Pending, rules: Approvals) -> str:
    """Return the instruction for a person who answers; empty if the question says all, or no answer is needed."""
    if pending.open:
        first, *others = pending.open
        return SEVERAL if others else instruction(first.kind, first.tool, first.schema, rules)
    return '' if pending.calls else instruction('question', '', pending.schema, rules)


def _call(
    call: ToolCallPart,
    deferred: DeferredToolRequests,
    schema: dict[str, Any] | None,
    *,
    changed: dict[str, Any] | None,
    is_hidden: bool,
) -> PendingCall:
    args = call.args_as_dict() if changed is None else changed
    kind: Kind = deferred.kind(call.tool_call_id)
    metadata = {**deferred.metadata.get(call.tool_call_id, {})}
    marked: dict[str, Any] = metadata.pop(MARK, {})
    called = call.tool_name if is_hidden else f'{call.tool_name} {dump_json(args).decode()}'
    match kind:
        case 'approval' if 'message' in marked:
            kind, text = 'authorization', marked['message']
            metadata |= {name: marked[name] for name in ('schemes', 'url') if marked[name]}
        case 'approval':
            text = f'May I call {called}?'
        case 'question':
            text, schema = marked.get('question') or f'Please answer {called}.', marked.get('schema')
        case _:
            text, schema = f'Waiting for the result of {called}.', None
    return PendingCall(
        id=call.tool_call_id,
        kind=kind,
        tool=call.tool_name,
        text=text,
        args=args,
        hidden=is_hidden,
        metadata=metadata,
        schema=schema,
        may_change=_is_json(args),
        changed=changed,
    )


def _is_json(args: Mapping[str, Any]) -> bool:
    """Return False for arguments with an infinite number. JSON has none, so no client could send it back."""
    return dump_json(args) == dump_json(args, inf_nan_mode='null')


def _shown(call: PendingCall, rules: Approvals) -> dict[str, Any]:
    item: dict[str, Any] = {
        'id': call.shown_id,
        'toolCallId': call.local_id or call.id,
        'kind': call.kind,
        'tool': call.tool,
        'text': call.text,
    }
    if call.kind == 'approval' and call.schema and 'description' in call.schema:
        item['description'] = call.schema['description']
    if call.args is not None and not call.hidden:
        item['args'] = call.args if _is_json(call.args) else from_json(dump_json(call.args, inf_nan_mode='strings'))
    if metadata := {name: value for name, value in (call.metadata or {}).items() if name not in PRIVATE}:
        item['metadata'] = metadata
    if call.kind == 'authorization':
        return item
    choices, defs = _choices(call, rules)
    return item | {'answerSchema': {'oneOf': choices, **defs}}


def _choices(call: PendingCall, rules: Approvals, defs: str = '') -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return JSON Schemas of the answers to a call, and the `$defs` of the enclosing schema.

    Args:
        call: The call.
        rules: Rules for the answers of clients.
        defs: Prefix of the names of the `$defs`.
    """
    if call.kind == 'approval' and not (call.may_change and rules.may_change(call.tool)):
        return [_choice(call, 'approve'), _choice(call, 'deny', reason=_TEXT)], {}
    own, own_defs = _hoisted(call.schema or {}, defs)
    if call.kind == 'approval':
        choices = [_choice(call, 'approve', args=own or {'type': 'object'}), _choice(call, 'deny', reason=_TEXT)]
    else:
        choices = [_choice(call, 'result', 'result', result=own), _choice(call, 'retry', 'reason', reason=_TEXT)]
    return choices, own_defs


def _hoisted(schema: Mapping[str, Any], prefix: str = '') -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a schema without its `$defs`, and the `$defs` for the enclosing schema, with a prefix to their names."""
    if '$defs' not in schema:
        return dict(schema), {}
    renamed = _with_refs(schema, prefix)
    defs: dict[str, Any] = renamed.pop('$defs')
    return renamed, {'$defs': {prefix + name: value for name, value in defs.items()}}


def _with_refs(schema: Any, prefix: str) -> Any:
    """Return a schema with a prefix to the names in its references to `$defs`."""
    if isinstance(schema, Mapping):
        items = cast('Mapping[str, Any]', schema).items()
        return {
            name: f'{_DEFS}{prefix}{value.removeprefix(_DEFS)}'
            if name == '$ref' and isinstance(value, str) and value.startswith(_DEFS)
            else _with_refs(value, prefix)
            for name, value in items
        }
    return [_with_refs(item, prefix) for item in cast('list[Any]', schema)] if isinstance(schema, list) else schema


def _answers_schema(calls: Sequence[PendingCall], rules: Approvals) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the JSON Schema of answers to calls, and the `$defs` of the schema."""
    choices: list[dict[str, Any]] = []
    defs: dict[str, Any] = {}
    for n, call in enumerate(calls):
        of_call, own_defs = _choices(call, rules, f'{n}.' if len(calls) > 1 else '')
        choices += of_call
        defs |= own_defs.get('$defs', {})
    items = {'type': 'array', 'minItems': 1, 'maxItems': len(calls), 'items': {'oneOf': choices}}
    data = {
        'type': 'object',
        'properties': {'callAnswers': items},
        'required': ['callAnswers'],
        'additionalProperties': False,
    }
    return [_of_part('data', data)], {'$defs': defs} if defs else {}


def _bare(schema: Mapping[str, Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return JSON Schemas of answers to a question of the agent, and the `$defs` of the schemas."""
    own, defs = _hoisted(schema)
    parts = [_of_part('data', own)]
    return [*parts, _of_part('text', {'type': 'string'})] if takes_words(schema) else parts, defs


def _of_part(member: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {'type': 'object', 'properties': {member: schema}, 'required': [member]}


def _message_schema(task_id: str, parts: Sequence[dict[str, Any]], defs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of a whole message with an answer, in A2A 1.0 and 0.3."""
    part = parts[0] if len(parts) == 1 else {'anyOf': [*parts]}
    return {
        'type': 'object',
        'properties': {
            'messageId': {'type': 'string', 'minLength': 1},
            'role': {'enum': ['ROLE_USER', 'user'], 'description': 'ROLE_USER in A2A 1.0, user in 0.3'},
            'taskId': {'const': task_id},
            'parts': {'type': 'array', 'minItems': 1, 'maxItems': 1, 'items': part},
        },
        'required': ['messageId', 'role', 'taskId', 'parts'],
        **defs,
    }


_DEFS = '#/$defs/'
_TEXT = {'type': 'string', 'minLength': 1}


def _choice(call: PendingCall, decision: str, *required: str, **properties: Any) -> dict[str, Any]:
    fixed = {'id': {'const': call.shown_id}, 'decision': {'const': decision}}
    return {
        'type': 'object',
        'properties': fixed | properties,
        'required': ['id', 'decision', *required],
        'additionalProperties': False,
    }


def _authorization(schemes: Sequence[str], url: str | None) -> list[Part]:
    fields = {name: value for name, value in (('schemes', [*schemes]), ('url', url)) if value}
    return [_data({'pending': [], 'authorization': fields})] if fields else []


def _text(text: str) -> Part:
    return Part(text=text, media_type='text/plain')


def _data(data: dict[str, Any]) -> Part:
    if deeper_than(MOST_LEVELS, data):
        raise UnexpectedModelBehavior(f'A call of the model is nested more than {MOST_LEVELS} deep.')
    return Part(data=data, media_type=MEDIA_TYPE, metadata={'type': MEDIA_TYPE})


# --- the answers in a client's message to the calls that a task waits with, checked against what the server stored ----

KEY = 'callAnswers'
"""The one member of a data part that answers calls."""

_DECISIONS: Mapping[str, tuple[str, str]] = {
    'approval': ('approve', 'deny'),
    'question': ('result', 'retry'),
    'external': ('result', 'retry'),
}
_FIELDS: Mapping[str, str] = {'approve': 'args', 'deny': 'reason', 'result': 'result', 'retry': 'reason'}
_REQUIRED = ('result', 'retry')
_LONGEST = 1_000
"""Most characters about the waiting calls in a refusal."""


class _Unclear(Exception):
    """Words of the client are no clear answer, so the client is asked again."""


def place_of_answers(message: Message) -> int | None:
    """Return the index of the part with answers to calls, even if no call waits for an answer; None for no part."""
    for n, part in enumerate(message['parts']):
        if 'data' in part and isinstance(part['data'], dict) and KEY in part['data']:
            return n
    return None


def answered_ids(message: Message) -> set[str]:
    """Return the ids that clients see of the calls that the data of a message answers. Malformed answers have no id."""
    place = place_of_answers(message)
    items: Any = [] if place is None else cast('dict[str, Any]', message['parts'][place].get('data'))[KEY]
    if not isinstance(items, list):
        return set()
    found = [cast('dict[str, Any]', item).get('id') for item in cast('list[Any]', items) if isinstance(item, dict)]
    return {call_id for call_id in found if isinstance(call_id, str)}


def answered(
    pending: Pending, message: Message, *, by: str, rules: Approvals, late: bool, limit: int, readable: Pending
) -> Pending:
    """Return the pending calls of a task after a message.

    Args:
        pending: The pending calls now.
        message: The client's message.
        by: Id of the caller; empty for an anonymous one.
        rules: Rules for answers.
        late: True if the message was accepted before the question was shown: its words and bare data are no answer.
        limit: Most times that the client may be asked again.
        readable: The calls that the caller may read: the refusal of an answer to another call names them.

    Returns:
        The same object if the message answers no call and need not; or, for an unclear answer, a copy with
        `asked_again` increased.

    Raises:
        InvalidParamsError: The message answers an unknown call, answers a call twice, or has an invalid answer; or its
            words are no answer, and the client was asked again often enough.
    """
    parts = message['parts']
    try:
        if (place := place_of_answers(message)) is not None:
            new = _structured(pending, parts, place, rules, readable)
        elif pending.open:
            new = _plain(pending, parts, rules, late)
        else:
            _check_output(pending, parts, rules, late)
            return pending
    except _Unclear:
        if pending.asked_again >= limit:
            raise _refused(pending, rules) from None
        return replace(pending, asked_again=pending.asked_again + 1)
    decided = {**pending.answers}
    for call_id, answer in new.items():
        decided[call_id] = replace(answer, by=by)
    return replace(pending, answers=decided)


def too_late() -> InvalidParamsError:
    """Return the refusal of a message for an earlier pause than the current one, which waits without calls."""
    return InvalidParamsError.of('message.parts', 'was sent before the task asked its current question; read the task')


def _refused(pending: Pending, rules: Approvals) -> InvalidParamsError:
    """Return the refusal of a message without an answer, with the instruction for a person."""
    what = to_write(pending, rules) or 'Answer the question with text.'
    return InvalidParamsError.of('message.parts', f'must answer what the status message of the task asks. {what}')


# --- data -----------------------------------------------------------------------------------------------------------


def _structured(
    pending: Pending, parts: Sequence[Part], at: int, rules: Approvals, readable: Pending
) -> dict[str, CallAnswer]:
    """Return the answers of a data part with `callAnswers`. Words decide nothing, and must not contradict the data."""
    data = cast('dict[str, Any]', parts[at].get('data'))
    words = [part['text'] for part in parts if 'text' in part]
    if len(words) < len(parts) - 1 or len(data) > 1:
        raise InvalidParamsError.of(
            'message.parts', f'must be one data part with only the key {KEY}, and optional text parts'
        )
    field = f'message.parts[{at}].data.{KEY}'
    items: Any = data[KEY]
    if not isinstance(items, list) or not items:
        raise InvalidParamsError.of(field, 'must be a list of answers')
    calls: list[PendingCall] = []
    new: dict[str, CallAnswer] = {}
    for n, item in enumerate(cast('list[Any]', items)):
        where = f'{field}[{n}]'
        call = _call_of(item, pending, where, readable)
        if call.id in pending.answers:
            raise InvalidParamsError.of(f'{where}.id', f'is of a call that was decided before. {_now(readable)}')
        if call.id in new:
            raise InvalidParamsError.of(f'{where}.id', 'already has an answer in this message: answer each call once')
        new[call.id] = _answer(call, item, where, rules)
        calls.append(call)
    if words:
        for call in calls:
            _check_words(words, call, new[call.id])
    return new


def _call_of(item: Any, pending: Pending, where: str, readable: Pending) -> PendingCall:
    """Return the call that an answer names."""
    if not isinstance(item, dict):
        raise InvalidParamsError.of(where, 'must be an object')
    call_id = cast('dict[str, Any]', item).get('id')
    if not isinstance(call_id, str):
        raise InvalidParamsError.of(f'{where}.id', 'must be the id of a pending call')
    for call in pending.calls:
        if call.shown_id == call_id and call.kind != 'authorization':
            return call
    raise InvalidParamsError.of(f'{where}.id', f'is not the id of a call that waits for an answer. {_now(readable)}')


def _now(pending: Pending) -> str:
    """Return the sentence about what waits, for a client that has answered something else."""
    waiting = pending.open or [call for call in pending.calls if call.kind == 'authorization']
    text = '; '.join(f'{call.text} (id {call.shown_id})' for call in waiting) or pending.question
    return f'Now the task waits with: {text[:_LONGEST]}' if text else 'Read the task for what waits now.'


def _answer(call: PendingCall, item: dict[str, Any], where: str, rules: Approvals) -> CallAnswer:
    decisions = _DECISIONS[call.kind]
    decision: Any = item.get('decision')
    if decision not in decisions:
        raise InvalidParamsError.of(f'{where}.decision', f'must be {" or ".join(decisions)}')
    name = _FIELDS[decision]
    if unknown := item.keys() - {'id', 'decision', name}:
        raise InvalidParamsError.of(
            f'{where}.{min(unknown)}', f'is not a field of an answer with the decision {decision}'
        )
    if name in item:
        if name == 'args' and not (call.may_change and rules.may_change(call.tool)):
            raise InvalidParamsError.of(
                f'{where}.args', 'the arguments of this tool may not be changed: leave args out'
            )
        if name == 'args':
            _refuse(fault_of(item[name], _schema(call, name), call.args, f'{where}.{name}'))
        else:
            _check(item[name], _schema(call, name), f'{where}.{name}')
    elif decision in _REQUIRED:
        raise InvalidParamsError.of(f'{where}.{name}', 'is required')
    content: dict[str, Any] = {name: item.get(name)}
    if name == 'result':
        content[name] = typed(item[name], call.schema or {})
    return CallAnswer(decision=decision, **content)


def _schema(call: PendingCall, name: str) -> dict[str, Any]:
    if name == 'reason':
        return {'type': 'string', 'minLength': 1}
    if name == 'args':
        return {**(call.schema or {}), 'type': 'object'}
    return call.schema or {}


def _check(value: Any, schema: Mapping[str, Any], where: str) -> None:
    _refuse(problem(value, schema, where))


def _refuse(fault: Problem | None) -> None:
    if fault is not None:
        raise InvalidParamsError.of(*fault)


def _check_words(words: Sequence[str], call: PendingCall, answer: CallAnswer) -> None:
    """Have the client asked again if words beside the data give another answer."""
    for text in words:
        if call.kind == 'approval':
            decided = verdict(text)
            contradicts = decided is not None and decided[0] != answer.decision
        else:
            value = from_words(text, call.schema) if is_closed(call.schema) else None
            contradicts = value is not None and value != answer.result
        if contradicts:
            raise _Unclear


# --- words, and data without `callAnswers` --------------------------------------------------------------------------


def _plain(pending: Pending, parts: Sequence[Part], rules: Approvals, late: bool) -> dict[str, CallAnswer]:
    """Return the answer to the only open call, in words or, for a question with a schema, in bare data."""
    call, *others = pending.open
    data = [(n, part['data']) for n, part in enumerate(parts) if 'data' in part]
    words = [part['text'] for part in parts if 'text' in part]
    if others or len(data) + len(words) < len(parts) or len(data) > 1:
        raise _refused(pending, rules)
    if data:
        [(n, value)] = data
        if call.kind != 'question' or call.schema is None:
            raise _refused(pending, rules)
        _check(value, call.schema, f'message.parts[{n}].data')
        if late:
            raise _Unclear  # data without an id may answer the earlier question
        answer = CallAnswer(decision='result', result=typed(value, call.schema))
        _check_words(words, call, answer)
        return {call.id: answer}
    if rules.plain_text_answers == 'none' or call.kind == 'external':
        raise _refused(pending, rules)
    text = '\n'.join(words)
    if call.kind == 'question':
        return {call.id: CallAnswer(decision='result', result=_value(text, call.schema, pending, rules, late=late))}
    decided = verdict(text)
    if decided is None or late:
        raise _Unclear
    decision, reason = decided
    if decision == 'approve' and not rules.words_approve(call.tool):
        raise _refused(pending, rules)
    return {call.id: CallAnswer(decision=decision, reason=reason)}


def _value(
    text: str, schema: Mapping[str, Any] | None, pending: Pending, rules: Approvals, *, late: bool
) -> str | float:
    """Return the value of words as an answer to a question."""
    if not takes_words(schema):
        raise _refused(pending, rules)
    value = from_words(text, schema)
    if value is None or late:
        raise _Unclear
    return value


def _check_output(pending: Pending, parts: Sequence[Part], rules: Approvals, late: bool) -> None:
    """Check the answer to the agent's own question, if the question has a schema: data decides, else words do."""
    if pending.schema is None:
        return
    data = [(n, part['data']) for n, part in enumerate(parts) if 'data' in part]
    for n, value in data:
        _check(value, pending.schema, f'message.parts[{n}].data')
    words = [part['text'] for part in parts if 'text' in part]
    if data:
        if late:
            raise _Unclear
        call = PendingCall(id='', kind='question', tool='', text='', schema=pending.schema)
        _check_words(words, call, CallAnswer(decision='result', result=data[0][1]))
    elif not words or rules.plain_text_answers == 'none':
        raise _refused(pending, rules)
    else:
        _value('\n'.join(words), pending.schema, pending, rules, late=late)


# --- the rules for plain words as answers of clients ------------------------------------------------------------------

_YES = frozenset({'yes', 'y', 'ok', 'okay', 'approve', 'approved'})
_NO = frozenset({'no', 'n', 'deny', 'denied'})
_PLAIN_TYPES = ('string', 'integer', 'number')
_DATA = 'Answer with data that fits "messageSchema" beside this text.'

SEVERAL = f'The task needs several answers, so plain words are not enough. {_DATA}'
"""The text for a person while more than one decision is open."""


def verdict(text: str) -> tuple[Literal['approve', 'deny'], str | None] | None:
    """Return the decision of a text, with the reason of a denial; None for a text without a decision.

    Only the words of a closed table decide, in any case, with spaces and punctuation around. The only longer form is
    `no:` with a reason, because a denial is safe.
    """
    word, colon, reason = text.partition(':')
    spelled = (word if colon else word.strip().rstrip('.!')).strip().casefold()
    if spelled in _NO:
        return 'deny', reason.strip() or None
    return ('approve', None) if spelled in _YES and not colon else None


def takes_words(schema: Mapping[str, Any] | None) -> bool:
    """Return True if plain words can be a value of a schema: no schema, or a string or number schema."""
    return schema is None or schema.get('type') in _PLAIN_TYPES


def from_words(text: str, schema: Mapping[str, Any] | None) -> str | float | None:
    """Return the value of a text by a schema for plain words; None for a text outside the schema."""
    if schema is None:
        return text
    value = text if schema['type'] == 'string' else _number(text.strip())
    return None if value is None or problem(value, schema, '') is not None else typed(value, schema)


def typed(value: Any, schema: Mapping[str, Any]) -> Any:
    """Return a value of a schema in the schema's type: JSON writes the integer 1000 also as `1000.0` and `1e3`."""
    return int(value) if isinstance(value, float) and schema.get('type') == 'integer' else value


def _number(text: str) -> float | None:
    try:
        value: Any = from_json(text, allow_inf_nan=False)
    except ValueError:
        return None
    is_finite = isinstance(value, int) or (isinstance(value, float) and isfinite(value))
    return value if is_finite and not isinstance(value, bool) else None


def is_closed(schema: Mapping[str, Any] | None) -> bool:
    """Return True if a value of the schema cannot be a mere remark: a number, or a listed value."""
    return schema is not None and takes_words(schema) and (schema['type'] != 'string' or 'enum' in schema)


def instruction(kind: str, tool: str, schema: Mapping[str, Any] | None, rules: Approvals) -> str:
    """Return the instruction for a person who answers the only open decision; empty if the question says all.

    Args:
        kind: Kind of the call; `question` for a question of the agent itself.
        tool: Name of the tool.
        schema: JSON Schema of the answer to a question.
        rules: Rules for the answers of clients.
    """
    if rules.plain_text_answers == 'none' or kind == 'external':
        return f'Plain words cannot answer this. {_DATA}'
    if kind == 'question':
        return _of_question(schema)
    who = '' if rules.approvers is None else 'Only an approver can decide. '
    if rules.words_approve(tool):
        return f'{who}Write "yes" to approve the call, or "no" or "no: reason" to deny it.'
    return (
        f'{who}Write "no" or "no: reason" to deny the call. Plain words cannot approve it; approving takes'
        ' data that fits "messageSchema" beside this text.'
    )


def _of_question(schema: Mapping[str, Any] | None) -> str:
    if schema is None:
        return ''
    if not takes_words(schema):
        return f'Plain words cannot answer this. {_DATA}'
    if 'enum' in schema:
        return f'Write one of these: {", ".join(str(value) for value in schema["enum"])}.'
    return {'string': '', 'integer': 'Write a whole number.', 'number': 'Write a number.'}[schema['type']]
