"""The messages and artifacts that the end of a task has added, joined in one column of the task.

An ended task never changes. Rows in a table of their own would cost a page of SQLite for each commit, and more. The
first line has the kind and the length of each: `m120 a64`. The bytes follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from struct import Struct
from struct import error as StructError

from ....errors import StoredDamaged

_SPACES = bytes.maketrans(b'am', b'  ')
_MESSAGES_FIRST, _ARTIFACTS_FIRST = bytes.maketrans(b'am', b'\0\1'), bytes.maketrans(b'am', b'\1\0')


def join_items(items: Sequence[tuple[str, str, bytes]]) -> bytes | None:
    """Join messages and artifacts: (kind, id, JSON). None for none."""
    if not items:
        return None
    lengths = ' '.join(f'{kind[0]}{len(body)}' for kind, _, body in items)
    return b''.join([lengths.encode(), b'\n', *(body for _, _, body in items)])


def number_items(ending: bytes | None) -> int:
    """Return the number of joined messages and artifacts, also of damaged bytes."""
    return 0 if ending is None else len(bytes(ending).partition(b'\n')[0].split())


def split_items(task_id: str, ending: bytes | None) -> tuple[list[bytes], list[bytes]]:
    """Split the joined messages and artifacts of an ended task. There may be thousands: no call of Python for each.

    Raises:
        StoredDamaged: The bytes are not from `join_items`.
    """
    if ending is None:
        return [], []
    lengths = ending[: max(0, ending.find(b'\n'))]  # `partition` would copy the rest
    kinds = lengths.translate(None, b'0123456789 ')
    sizes = b's'.join(lengths.translate(_SPACES).split())
    try:
        bodies = Struct(b'%dx%bs' % (len(lengths) + 1, sizes)).unpack(ending)
    except StructError:
        bodies = ()
    if not kinds or kinds.strip(b'am') or len(bodies) != len(kinds):
        raise StoredDamaged(f'Task {task_id} has a stored end that cannot be read.')
    return [*compress(bodies, kinds.translate(_MESSAGES_FIRST))], [*compress(bodies, kinds.translate(_ARTIFACTS_FIRST))]
