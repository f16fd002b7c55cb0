"""How deep JSON values are nested."""

from __future__ import annotations

from typing import Any, cast

MOST_LEVELS = 100
"""Most nested objects and lists of data that an agent sends. Clients read JSON that is nested 200 deep: the rest is for
the levels that a list of tasks and a server in between add."""


def deeper_than(depth: int, value: object) -> bool:
    """Return True if objects and lists are nested deeper than `depth`, level by level."""
    level: list[object] = [value] if isinstance(value, dict | list) else []
    for _ in range(depth):
        if not level:
            return False
        level = [item for container in level for item in _items(container) if isinstance(item, dict | list)]
    return bool(level)


def is_deep(written: bytes, value: object, depth: int) -> bool:
    """Return True if a value is nested deeper than `depth`; quicker than `deeper_than`, by the JSON of the value."""
    # Most values have fewer objects and lists than the limit of the depth.
    return written.count(b'[') + written.count(b'{') > depth and deeper_than(depth, value)


def _items(container: object) -> Any:
    return cast('dict[str, object]', container).values() if isinstance(container, dict) else container
