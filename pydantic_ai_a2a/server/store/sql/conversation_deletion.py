"""The deletion of conversations, with the model messages that no other conversation shares.

The messages of long conversations are deleted in several transactions: `entry_erased` has the newest messages of what
is left to delete.
"""

from __future__ import annotations

from collections.abc import Sequence

from .key_conditions import KEYS, among
from .transaction import LockName, Transaction

_LEAVE = 'INSERT INTO entry_erased (agent, owner, tip) VALUES (?, ?, ?) ON CONFLICT DO NOTHING'
_LEAVE_TIPS = (
    'INSERT INTO entry_erased (agent, owner, tip) SELECT agent, owner, head_id FROM conversation'
    ' WHERE head_id IS NOT NULL AND {0} UNION SELECT agent, owner, tip FROM conversation_branch WHERE {0}'
    ' ON CONFLICT DO NOTHING'
)
"""Note the newest messages of conversations, and of the branches that the conversations have left."""
_UNUSED = (
    'NOT EXISTS (SELECT 1 FROM entry child WHERE child.agent = e.agent AND child.owner = e.owner'
    ' AND child.parent_id = e.id AND child.parent_id IS NOT NULL AND child.follows = 0{0})'
    ' AND NOT EXISTS (SELECT 1 FROM entry child WHERE child.agent = e.agent AND child.owner = e.owner'
    ' AND child.id = e.next_id{0})'
    ' AND NOT EXISTS'
    ' (SELECT 1 FROM conversation_branch b WHERE b.agent = e.agent AND b.owner = e.owner AND b.tip = e.id)'
)
_DROP_UNUSED = (
    'WITH RECURSIVE chain (owner, id, parent_id) AS ('
    f' SELECT owner, id, parent_id FROM entry e WHERE {{}} AND {_UNUSED.format("")}'
    ' UNION ALL SELECT e.owner, e.id, e.parent_id FROM chain JOIN entry e'
    ' ON e.agent = ? AND e.owner = chain.owner AND e.id = chain.parent_id'
    f' WHERE {_UNUSED.format(" AND child.id <> chain.id")})'
    ' DELETE FROM entry WHERE agent = ? AND (owner, id) IN (SELECT owner, id FROM chain LIMIT ?)'
    ' RETURNING owner, id, parent_id'
)
"""Delete entries and the entries before them, each up to an entry of another conversation; all up to a limit. The chain
has an entry before its parent, so the limit leaves no gap."""


def erase(agent: str, keys: Sequence[tuple[str, str]], limit: int) -> Transaction[tuple[int, int]]:
    """Delete conversations (owner, id), with at most `limit` entries outside all other conversations of the owners.

    Return the numbers of deleted conversations and entries; `drop_left` deletes the other entries. The caller has
    locked the conversations, and then the owners: a concurrent branch must not lose shared entries.
    """
    of_keys, values = among('agent, owner, id', [(agent, *key) for key in keys])
    yield [(_LEAVE_TIPS.format(of_keys), [values * 2])]
    rows = yield f'DELETE FROM conversation WHERE {of_keys} RETURNING 1', values
    yield [(f'DELETE FROM conversation_branch WHERE {of_keys}', [values])]
    return len(rows), (yield from drop_left_of(agent, sorted({owner for owner, _ in keys}), limit))


def drop_left(agent: str, owner: str, limit: int) -> Transaction[int]:
    """Delete entries of erased conversations of an owner, up to a limit, and return the number."""
    if not (yield 'SELECT 1 FROM entry_erased WHERE agent = ? AND owner = ? LIMIT 1', (agent, owner)):
        return 0
    yield LockName((agent, owner))
    return (yield from drop_left_of(agent, [owner], limit))


def drop_left_of(agent: str, owners: Sequence[str], limit: int) -> Transaction[int]:
    """Delete entries like `drop_left`, of several owners that the caller has locked."""
    dropped = 0
    while owners and dropped < limit:
        of_owners, values = among('agent, owner', [(agent, owner) for owner in owners])
        tips = yield (
            f'SELECT owner, tip FROM entry_erased WHERE {of_owners} LIMIT ?',
            (*values, KEYS),
        )
        if not tips:
            break
        of_tips, values = among('agent, owner, id', [(agent, *tip) for tip in tips])
        rows = yield _DROP_UNUSED.format(of_tips), (*values, agent, agent, limit - dropped)
        dropped += len(rows)
        gone = {(owner, entry_id) for owner, entry_id, _ in rows}
        before = {(owner, parent_id) for owner, _, parent_id in rows if parent_id is not None} - gone
        # Below the limit, each tip is deleted, or is in another conversation. At the limit, the first tips are deleted.
        done = [tuple(tip) for tip in tips if dropped < limit or tuple(tip) in gone]
        of_done, values = among('agent, owner, tip', [(agent, *tip) for tip in done])
        yield [
            (f'DELETE FROM entry_erased WHERE {of_done}', [values]),
            (_LEAVE, [(agent, *key) for key in sorted(before)]),
        ]
    return dropped
