"""The messages and artifacts that the end of a task has added, joined in one column of the task.

An ended task never changes. Rows in a table of their own would cost a page of SQLite for each commit, and more. The
first line has the kind and the length of each: `m120 a64`. The bytes follow.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import StoredDamaged

__all__ = ('join', 'number', 'split')

_KINDS = {b'm': 'message', b'a': 'artifact'}


def join(items: Sequence[tuple[str, str, bytes]]) -> bytes | None:
    """Join messages and artifacts: (kind, id, JSON). None for none."""
    if not items:
        return None
    lengths = ' '.join(f'{kind[0]}{len(body)}' for kind, _, body in items)
    return b'\n'.join([lengths.encode(), b''.join(body for _, _, body in items)])


def number(ending: bytes | None) -> int:
    """Return the number of joined messages and artifacts, also of damaged bytes."""
    return 0 if ending is None else len(bytes(ending).partition(b'\n')[0].split())


def split(task_id: str, ending: bytes | None) -> list[tuple[str, bytes]]:
    """Return the messages and artifacts of an ended task: (kind, JSON).

    Raises:
        StoredDamaged: The bytes are not from `join`.
    """
    if ending is None:
        return []
    try:
        lengths, _, rest = bytes(ending).partition(b'\n')
        items: list[tuple[str, bytes]] = []
        start = 0
        for length in lengths.split():
            end = start + int(length[1:])
            items.append((_KINDS[length[:1]], rest[start:end]))
            start = end
    except (KeyError, ValueError):
        raise StoredDamaged(f'Task {task_id} has a stored end that cannot be read.') from None
    return items
