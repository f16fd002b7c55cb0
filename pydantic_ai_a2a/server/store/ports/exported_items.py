"""What an export yields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pydantic_ai.conversation_store import ConversationRecord
from pydantic_ai.messages import ModelMessage

from ....types.stored_tasks import StoredTask


class ExportedTask(NamedTuple):
    """A task with all messages and artifacts."""

    task: StoredTask
    requests: Sequence[bytes]
    """The requests of the task's messages, oldest first, like `Claim.request`. Empty requests are left out."""


class ExportedConversation(NamedTuple):
    """A conversation with all messages."""

    record: ConversationRecord
    """Usage and origin of the conversation."""
    messages: Sequence[ModelMessage]
    branches: Sequence[Sequence[ModelMessage]]
    """The abandoned histories of `record.branches`."""
