"""Conversations in memory: chains of model messages that forks share.

The context id is the conversation id, and each owner has separate conversations.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from itertools import islice

from pydantic_ai.conversation_store import ConversationConflict, ConversationRecord
from pydantic_ai.messages import ModelMessage
from pydantic_ai.usage import RunUsage

from ...conversion.stream import appended, closed
from ..histories import dump_message, dump_record, load_messages, load_record, load_usage
from .records import Task
from .splices import Body

BATCH = 500
"""The most entries to delete in one step."""
_ENTRY, _CONVERSATION = 400, 500
"""Bytes of an entry and of a conversation, besides their JSON."""


class Entry:
    """A model message of a conversation."""

    __slots__ = ('id', 'message', 'parent', 'uses')

    def __init__(self, id: str, parent: Entry | None, message: Body) -> None:
        self.id = id
        self.parent = parent
        self.message = message
        self.uses = 0
        """Number of entries after this entry, and of conversations and branches that end here."""


class Conversation:
    """The newest entries of a conversation, and its record as JSON."""

    __slots__ = ('branches', 'head', 'record', 'updated_at')

    def __init__(self, record: bytes, head: Entry | None, branches: Sequence[Entry], updated_at: int) -> None:
        self.record = record
        self.head = head
        """The newest entry; None without messages."""
        self.branches = branches
        """The newest entries of the branches that the conversation has left."""
        self.updated_at = updated_at

    def tips(self) -> list[Entry]:
        """Return the newest entries of the conversation and of its branches."""
        return [*self.branches] if self.head is None else [self.head, *self.branches]


class Turn:
    """A turn to append to a conversation, converted to the stored form."""

    __slots__ = ('at', 'before', 'context_id', 'entries', 'owner', 'record')

    def __init__(
        self,
        owner: str,
        context_id: str,
        before: Conversation | None,
        record: ConversationRecord,
        entries: list[Entry],
        *,
        at: int,
    ) -> None:
        self.before = before
        """The conversation before the turn; None for a new conversation."""
        self.owner = owner
        self.context_id = context_id
        self.record = dump_record(record)
        self.entries = entries
        self.at = at


class _Owner:
    __slots__ = ('conversations', 'entries', 'left')

    def __init__(self) -> None:
        self.conversations: dict[str, Conversation] = {}
        self.entries: dict[str, Entry] = {}
        self.left: list[Entry] = []
        """Newest entries of erased conversations: sweeps delete these entries, and unused entries before them."""


class Conversations:
    """The conversations of all owners."""

    def __init__(self) -> None:
        self._owners: dict[str, _Owner] = {}
        self._ages: list[tuple[int, str, str]] = []
        """All conversations, the oldest change first: time, owner, id."""
        self._left: dict[str, None] = {}
        """Owners with entries of erased conversations."""
        self.size = 0
        """Bytes of all conversations."""

    def __len__(self) -> int:
        return len(self._ages)

    def find(self, owner: str, context_id: str) -> Conversation | None:
        """Return a conversation."""
        of_owner = self._owners.get(owner)
        return None if of_owner is None else of_owner.conversations.get(context_id)

    def head(self, owner: str, context_id: str) -> str | None:
        """Return the id of the newest entry of a conversation."""
        conversation = self.find(owner, context_id)
        return None if conversation is None or conversation.head is None else conversation.head.id

    def of_owner(self, owner: str) -> list[tuple[str, Conversation]]:
        """Return the conversations of an owner with their ids."""
        of_owner = self._owners.get(owner)
        return [] if of_owner is None else [*of_owner.conversations.items()]

    def entry(self, owner: str, entry_id: str) -> Entry:
        """Return an entry.

        Raises:
            LookupError: The owner has no such entry.
        """
        of_owner = self._owners.get(owner)
        if of_owner is None or entry_id not in of_owner.entries:
            raise LookupError(entry_id)
        return of_owner.entries[entry_id]

    def has_entry(self, owner: str, entry_id: str) -> bool:
        """Return True if an owner has an entry."""
        of_owner = self._owners.get(owner)
        return of_owner is not None and entry_id in of_owner.entries

    def chain(self, newest: Entry | None, known_id: str | None = None) -> list[Entry]:
        """Return the entries up to `newest`, oldest first; only newer entries than a known entry in the chain."""
        entries: list[Entry] = []
        while newest is not None and newest.id != known_id:
            entries.append(newest)
            newest = newest.parent
        return entries[::-1]

    def turn(
        self,
        owner: str,
        context_id: str,
        messages: Sequence[ModelMessage],
        *,
        run_id: str,
        usage: RunUsage | None,
        at: int,
    ) -> Turn:
        """Return a turn that continues the conversation as it stands now, without a change of the store."""
        conversation = self.find(owner, context_id)
        record, rows = appended(
            None if conversation is None else load_record(conversation.record),
            messages,
            conversation_id=context_id,
            owner=owner,
            run_id=run_id,
            usage=usage,
            at=at,
        )
        entries: list[Entry] = []
        parent = None if conversation is None else conversation.head
        for entry_id, _, message in rows:
            parent = Entry(entry_id, parent, dump_message(message))
            entries.append(parent)
        return Turn(owner, context_id, conversation, record, entries, at=at)

    def closed_turn(self, task: Task, at: int) -> Turn | None:
        """Return the turn of a canceled task, as by `turn`; None if the task does not wait for its client."""
        progress = task.progress
        if progress.own_messages is None:
            return None
        return self.turn(
            task.owner,
            task.context_id,
            closed(load_messages(progress.own_messages)),
            run_id=f'{task.id}.{task.run}',
            usage=None if progress.own_usage is None else load_usage(progress.own_usage),
            at=at,
        )

    def append(self, turn: Turn) -> None:
        """Append a turn to its conversation."""
        head, branches = (None, ()) if turn.before is None else (turn.before.head, turn.before.branches)
        head = turn.entries[-1] if turn.entries else head
        self._add_entries(turn.owner, turn.entries)
        self._put(turn.owner, turn.context_id, Conversation(turn.record, head, branches, turn.at))

    def write(
        self, owner: str, record: ConversationRecord, entries: Sequence[tuple[str, str | None, bytes]], at: int
    ) -> None:
        """Replace the record of a conversation, and add entries: id, parent id, message.

        Raises:
            ConversationConflict: The head or a parent does not exist, or a new entry exists.
        """
        of_owner = self._owners.get(owner) or _Owner()
        added: dict[str, Entry] = {}

        def find(entry_id: str) -> Entry:
            entry = added.get(entry_id) or of_owner.entries.get(entry_id)
            if entry is None:
                raise ConversationConflict(record.conversation_id)
            return entry

        for entry_id, parent_id, message in entries:
            if entry_id in of_owner.entries:
                raise ConversationConflict(record.conversation_id)
            added[entry_id] = Entry(entry_id, None if parent_id is None else find(parent_id), message)
        head = None if record.head_id is None else find(record.head_id)
        branches = [find(entry_id) for entry_id in record.branches]
        conversation = Conversation(dump_record(record), head, branches, at)
        self._add_entries(owner, [*added.values()])
        self._put(owner, record.conversation_id, conversation)

    def _add_entries(self, owner: str, entries: Sequence[Entry]) -> None:
        of_owner = self._owners.setdefault(owner, _Owner())
        for entry in entries:
            of_owner.entries[entry.id] = entry
            self.size += len(entry.message) + _ENTRY
            if entry.parent is not None:
                entry.parent.uses += 1

    def _put(self, owner: str, context_id: str, conversation: Conversation) -> None:
        conversations = self._owners[owner].conversations
        before = conversations.get(context_id)
        for tip in conversation.tips():
            tip.uses += 1
        if before is not None:
            self._forget(owner, context_id, before)
        conversations[context_id] = conversation
        self.size += len(conversation.record) + _CONVERSATION
        insort(self._ages, (conversation.updated_at, owner, context_id))

    def _forget(self, owner: str, context_id: str, conversation: Conversation) -> None:
        for tip in conversation.tips():
            tip.uses -= 1
        del self._ages[bisect_left(self._ages, (conversation.updated_at, owner, context_id))]
        self.size -= len(conversation.record) + _CONVERSATION

    def oldest(self) -> Iterator[tuple[int, str, str]]:
        """Yield all conversations, the oldest change first: time, owner, id."""
        return iter(self._ages)

    def erase(self, owner: str, context_id: str, limit: int) -> int | None:
        """Delete a conversation, with at most `limit` entries outside all other conversations of the owner.

        Return the number of deleted entries; `drop_left` deletes the rest. Return None without such a conversation.
        """
        conversation = self.find(owner, context_id)
        if conversation is None:
            return None
        of_owner = self._owners[owner]
        del of_owner.conversations[context_id]
        self._forget(owner, context_id, conversation)
        of_owner.left += dict.fromkeys(conversation.tips())
        self._left[owner] = None
        return self.drop_left(owner, limit)

    def left(self, limit: int) -> list[str]:
        """Return owners with entries of erased conversations."""
        return [*islice(self._left, limit)]

    def drop_left(self, owner: str, limit: int) -> int:
        """Delete entries of erased conversations of an owner, up to a limit, and return the number."""
        if owner not in self._left:
            return 0
        of_owner = self._owners[owner]
        dropped = 0
        while of_owner.left and dropped < limit:
            entry = of_owner.left.pop()
            if entry.uses or entry.id not in of_owner.entries:
                continue
            self._drop(of_owner, entry)
            dropped += 1
            if entry.parent is not None:
                of_owner.left.append(entry.parent)
        if not of_owner.left:
            del self._left[owner]
            self._drop_owner(owner)
        return dropped

    def drop_entries(self, owner: str, limit: int) -> int:
        """Delete entries of an owner without conversations, up to a limit, and return the number."""
        of_owner = self._owners.get(owner)
        if of_owner is None or of_owner.conversations:
            return 0
        entries = [*islice(of_owner.entries.values(), limit)]
        for entry in entries:
            self._drop(of_owner, entry)
        self._drop_owner(owner)
        return len(entries)

    def _drop(self, of_owner: _Owner, entry: Entry) -> None:
        del of_owner.entries[entry.id]
        self.size -= len(entry.message) + _ENTRY
        if entry.parent is not None:
            entry.parent.uses -= 1

    def _drop_owner(self, owner: str) -> None:
        of_owner = self._owners[owner]
        if not of_owner.conversations and not of_owner.entries:
            del self._owners[owner]
