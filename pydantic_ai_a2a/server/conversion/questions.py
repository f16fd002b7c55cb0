"""The status message of a waiting task: a text for people, and a data part for programs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast
from uuid import uuid4

from pydantic_ai.exceptions import UnexpectedModelBehavior
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.tools import DeferredToolRequests
from pydantic_core import from_json

from ...settings import Approvals
from ...types import Part, TaskState, dump_json, frozen
from ...wire.extensions.pending_calls_extension import MEDIA_TYPE
from ...wire.extensions.remote_calls import PRIVATE
from ...wire.schemas.json_depth import MOST_LEVELS, deeper_than
from .answers_in_words import SEVERAL, instruction, takes_words
from .call_decisions import DECISIONS, REASON, may_change_arguments
from .chosen_states import MARK, AuthRequired, Rejected, State
from .forwarded_questions import calls_for_clients
from .pending_calls import Kind, Pending, PendingCall

_DEFS = '#/$defs/'


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
    fixed = call.kind == 'approval' and not may_change_arguments(call, rules)
    own, own_defs = ({}, {}) if fixed else _hoisted(call.schema or {}, defs)
    schemas = {'args': own or {'type': 'object'}, 'result': own, 'reason': {**REASON}}
    choices: list[dict[str, Any]] = []
    for decision, (member, required) in DECISIONS[call.kind].items():
        members = {} if fixed and member == 'args' else {member: schemas[member]}
        choices.append(_choice(call, decision, *([member] if required else []), **members))
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
