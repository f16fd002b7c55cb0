"""The turn of a task as a part of its conversation: closed after a cancellation, and appended at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeAlias

from pydantic_ai.conversation_store import ConversationRecord
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.usage import RunUsage

Entry: TypeAlias = tuple[str, str | None, ModelMessage]
"""A message of a conversation: its entry id, the id of the entry before, and the message."""


def closed_turn(messages: Sequence[ModelMessage]) -> Sequence[ModelMessage]:
    """Return a turn that another prompt can follow: Pydantic AI takes no prompt after calls without results."""
    if messages and isinstance(last := messages[-1], ModelResponse) and last.tool_calls:
        return [*messages[:-1], replace(last, state='interrupted')]
    return messages


def appended(
    record: ConversationRecord | None,
    messages: Sequence[ModelMessage],
    *,
    rewritten: Sequence[ModelMessage] | None = None,
    read: str | None = None,
    conversation_id: str,
    owner: str,
    run_id: str,
    usage: RunUsage | None,
    at: int,
) -> tuple[ConversationRecord, list[Entry]]:
    """Return the record of a conversation after a turn, and the new entries.

    Args:
        record: The record before the turn; None for a new conversation.
        messages: The model messages of the turn.
        rewritten: The whole conversation with these messages, if the turn has summarised earlier messages. Then the
            conversation before becomes a branch, as when a `ConversationStore` saves a rewritten history.
        read: The newest entry that the turn has read. Messages after this entry are not lost: the turn is appended.
        conversation_id: The context id.
        owner: Owner of the context.
        run_id: Names the entries and the revision. A run appends once.
        usage: Usage of the turn; None for none.
        at: Time of the turn (ms).
    """
    head = None if record is None else record.head_id
    branches = [] if record is None else record.branches
    if rewritten is not None and head == read:
        messages, head, branches = rewritten, None, branches if head is None else [*branches, head]
    entries: list[Entry] = []
    for n, message in enumerate(messages):
        entry_id = f'{run_id}.{n}'
        entries.append((entry_id, head, message))
        head = entry_id
    usage = RunUsage() if usage is None else usage
    updated_at = datetime.fromtimestamp(at / 1000, UTC)
    changes: dict[str, Any] = {'head_id': head, 'branches': branches, 'revision': run_id, 'updated_at': updated_at}
    if record is None:
        return ConversationRecord(conversation_id=conversation_id, scope=owner, usage=usage, **changes), entries
    return replace(record, usage=record.usage + usage, **changes), entries
