"""The JSON Schemas of answers to calls and questions, and of a whole message with answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from ...settings.approvals import Approvals
from .answers_in_words import takes_words
from .call_decisions import DECISIONS, REASON, may_change_arguments
from .pending_calls import PendingCall

_DEFS = '#/$defs/'


def answers_schema(calls: Sequence[PendingCall], rules: Approvals) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the JSON Schema of answers to calls, and the `$defs` of the schema."""
    choices: list[dict[str, Any]] = []
    defs: dict[str, Any] = {}
    for n, call in enumerate(calls):
        of_call, own_defs = choice_schemas(call, rules, f'{n}.' if len(calls) > 1 else '')
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


def choice_schemas(call: PendingCall, rules: Approvals, defs: str = '') -> tuple[list[dict[str, Any]], dict[str, Any]]:
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


def question_schema(schema: Mapping[str, Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return JSON Schemas of answers to a question of the agent, and the `$defs` of the schemas."""
    own, defs = _hoisted(schema)
    parts = [_of_part('data', own)]
    return [*parts, _of_part('text', {'type': 'string'})] if takes_words(schema) else parts, defs


def message_schema(task_id: str, parts: Sequence[dict[str, Any]], defs: Mapping[str, Any]) -> dict[str, Any]:
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


def _of_part(member: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {'type': 'object', 'properties': {member: schema}, 'required': [member]}


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
