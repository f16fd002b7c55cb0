"""The size of a task that a client assembles from events, for the limits of answers."""

from __future__ import annotations

from typing import cast

from ..types.a2a_objects import StreamResponse, Task


class TaskSize:
    """The size of a task that is assembled from events. Content that was replaced does not count."""

    def __init__(self) -> None:
        self._pieces: dict[str, int] = {}
        self.characters = 0
        """Characters of the events from which the task is assembled."""
        self.entries = 0
        """Artifacts and keys of metadata, at most: an entry of the first event and of a later event counts twice."""

    def add(self, event: StreamResponse, size: int) -> None:
        """Count an event of some characters."""
        if 'artifact_update' in event:
            update = event['artifact_update']
            piece = f'artifact {update["artifact"]["artifact_id"]}'
            self._put(piece, size + self._pieces.get(piece, 0) if update.get('append') else size)
        elif 'message' in event:
            self._put('messages', size + self._pieces.get('messages', 0))
        elif 'status_update' in event:
            is_message = 'message' in event['status_update']['status']
            self._put(*(('messages', size + self._pieces.get('messages', 0)) if is_message else ('status', size)))
            for key in event['status_update'].get('metadata', ()):
                self._put(f'metadata {key}', size)
        else:
            task = cast('Task', event.get('task'))
            kept = {} if 'artifacts' in task else {k: n for k, n in self._pieces.items() if k.startswith('artifact ')}
            said = {} if 'history' in task else {'messages': self._pieces.get('messages', 0)}
            self._pieces = {'task': size, **kept, **said}
            self.characters = sum(self._pieces.values())
            self.entries = len(task.get('artifacts', kept)) + len(task.get('metadata', ()))

    def _put(self, piece: str, size: int) -> None:
        before = self._pieces.get(piece)
        self.entries += before is None
        self.characters += size - (before or 0)
        self._pieces[piece] = size
