"""The parts of the status message of a waiting task: a text for people, and a data part for programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from pydantic_ai.exceptions import UnexpectedModelBehavior
from pydantic_core import from_json

from ...json_values import dump_json
from ...settings.approvals import Approvals
from ...types.a2a_objects import Part
from ...wire.extensions.pending_calls_extension import MEDIA_TYPE
from ...wire.extensions.remote_calls import PRIVATE
from ...wire.schemas.json_depth import MOST_LEVELS, deeper_than
from .answer_schemas import answers_schema, choice_schemas, message_schema, question_schema
from .answers_in_words import SEVERAL, instruction
from .pending_calls import Pending, PendingCall

DecidedBy: TypeAlias = Literal['approver', 'caller']
"""For an approval with `Approvals.approvers`: the reader of the status may decide, or callers that the rule names.

What is stored does not say it: it depends on the reader."""
_DECIDED_BY = 'decidedBy'


def shown(
    pending: Pending,
    rules: Approvals,
    task_id: str,
    *,
    again: bool = False,
    decided_by: DecidedBy | None = None,
    asked_by: str = '',
) -> list[Part]:
    """Return the parts for clients: a text for people, and a data part for programs.

    Args:
        pending: The pending calls and questions.
        rules: Rules for the answers of clients.
        task_id: The task.
        again: True after an unclear answer of the client.
        decided_by: Who decides about approvals, for a reader; None for the status that is stored.
        asked_by: Id of the caller who has asked for the calls; empty to name none.
    """
    waiting = pending.open or pending.calls
    questions = [call.text for call in waiting] if pending.calls else [pending.question]
    lines = [*(['The answer is not clear.'] if again else []), *questions, to_write(pending, rules)]
    data: dict[str, Any] = {'pending': [_shown(call, rules, decided_by) for call in waiting]}
    if asked_by:
        data['askedBy'] = {'id': asked_by}
    if pending.schema is not None:
        data['schema'] = pending.schema
    if pending.open:
        data['messageSchema'] = message_schema(task_id, *answers_schema(pending.open, rules))
    elif pending.schema is not None:
        data['messageSchema'] = message_schema(task_id, *question_schema(pending.schema))
    return [text_part('\n'.join(line for line in lines if line)), data_part(data)]


def message_with_decider(message: bytes, decided_by: DecidedBy) -> bytes:
    """Return the stored status message of a waiting task, which says who decides about its approvals."""
    body = from_json(message)
    return dump_json(body) if _name_decider(body, decided_by) else message


def event_with_decider(event: bytes, decided_by: DecidedBy) -> bytes:
    """Return the stored event of a pause, which says who decides about the approvals."""
    body = from_json(event)
    message = body['statusUpdate']['status'].get('message')
    return dump_json(body) if message is not None and _name_decider(message, decided_by) else event


def _name_decider(message: dict[str, Any], decided_by: DecidedBy) -> bool:
    """Change a status message. Return False if it has no approvals."""
    data = (part['data'] for part in message['parts'] if part.get('mediaType') == MEDIA_TYPE)
    approvals = [call for values in data for call in values.get('pending', ()) if call['kind'] == 'approval']
    for call in approvals:
        call[_DECIDED_BY] = decided_by
    return bool(approvals)


def to_write(pending: Pending, rules: Approvals) -> str:
    """Return the instruction for a person who answers; empty if the question says all, or no answer is needed."""
    if pending.open:
        first, *others = pending.open
        return SEVERAL if others else instruction(first.kind, first.tool, first.schema, rules)
    return '' if pending.calls else instruction('question', '', pending.schema, rules)


def is_json(args: Mapping[str, Any]) -> bool:
    """Return False for arguments with an infinite number. JSON has none, so no client could send it back."""
    return dump_json(args) == dump_json(args, inf_nan_mode='null')


def text_part(text: str) -> Part:
    """Return a text for people."""
    return Part(text=text, media_type='text/plain')


def data_part(data: dict[str, Any]) -> Part:
    """Return data for programs.

    Raises:
        UnexpectedModelBehavior: The data is nested too deeply for clients.
    """
    if deeper_than(MOST_LEVELS, data):
        raise UnexpectedModelBehavior(f'A call of the model is nested more than {MOST_LEVELS} deep.')
    return Part(data=data, media_type=MEDIA_TYPE, metadata={'type': MEDIA_TYPE})


def _shown(call: PendingCall, rules: Approvals, decided_by: DecidedBy | None) -> dict[str, Any]:
    item: dict[str, Any] = {
        'id': call.shown_id,
        'toolCallId': call.local_id or call.id,
        'kind': call.kind,
        'tool': call.tool,
        'text': call.text,
    }
    if call.kind == 'approval' and decided_by is not None:
        item[_DECIDED_BY] = decided_by
    if call.kind == 'approval' and call.schema and 'description' in call.schema:
        item['description'] = call.schema['description']
    if call.args is not None and not call.hidden:
        item['args'] = call.args if is_json(call.args) else from_json(dump_json(call.args, inf_nan_mode='strings'))
    if metadata := {name: value for name, value in (call.metadata or {}).items() if name not in PRIVATE}:
        item['metadata'] = metadata
    if call.kind == 'authorization':
        return item
    choices, defs = choice_schemas(call, rules)
    return item | {'answerSchema': {'oneOf': choices, **defs}}
