"""The command `export`: all stored data of an owner, or of one of its contexts, as JSON Lines."""

from __future__ import annotations

from click import command
from pydantic import TypeAdapter
from pydantic_ai.conversation_store import ConversationRecord
from pydantic_ai.messages import ModelMessagesTypeAdapter
from pydantic_core import to_json

from ..server.store.ports import ExportedConversation, ExportedTask
from ..wire.protocol.v1_0 import V1_0
from .async_commands import awaited
from .owner_options import whose_options
from .store_options import Store, opened, store_options
from .terminal import echo_json, say


@command()
@store_options
@whose_options
@awaited
async def export(store: Store, owner: str, context_id: str | None) -> int:
    """Write the tasks and conversations of an owner.

    The output is JSON Lines. With --context, it holds one context of the owner.
    """
    lines = 0
    async with opened(store) as backend:
        async for item in backend.housekeeping.export(owner, context_id):
            body = _task(item) if isinstance(item, ExportedTask) else _conversation(item)
            echo_json(f'{{"owner":{to_json(owner).decode()},{body.decode()}}}')
            lines += 1
    if not lines:
        say(
            f'no data is stored for the owner {owner}' + ('' if context_id is None else f' in the context {context_id}')
        )
    return 0 if lines else 1


def _task(exported: ExportedTask) -> bytes:
    requests = b',"requests":[%s]' % b','.join(exported.requests) if exported.requests else b''
    return b'"task":%s%s' % (V1_0().encode_task(exported.task), requests)


def _conversation(conversation: ExportedConversation) -> bytes:
    record = TypeAdapter(ConversationRecord).dump_json(conversation.record)
    messages, *branches = [
        ModelMessagesTypeAdapter.dump_json([*branch]) for branch in (conversation.messages, *conversation.branches)
    ]
    return b'"conversation":%s,"messages":%s,"branches":[%s]' % (record, messages, b','.join(branches))
