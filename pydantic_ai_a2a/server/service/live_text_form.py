"""The form in which a reader of a stream gets live text."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from ...types.stored_events import TaskEvent
from ...wire.protocol import stored


class LiveTextForm(Enum):
    """What a reader of a stream gets of live text: the pieces of an answer, the whole text at their end, and notes.

    The log is the same for all readers.
    """

    WHOLE = 'whole'
    """The whole text, without pieces and notes."""
    MARK = 'mark'
    """The pieces, and an empty last piece."""
    REPLACE = 'replace'
    """The pieces, and the whole text as a replacement."""
    ASKED = 'asked'
    """The pieces, an empty last piece, and the notes: for clients that activate the extension."""

    @property
    def pieces(self) -> bool:
        """True if the reader gets pieces."""
        return self is not LiveTextForm.WHOLE

    def of(self, event: TaskEvent) -> TaskEvent | None:
        """Return an event as the reader gets it; None for nothing."""
        payload = event.payload
        if not stored.is_live(payload):
            return event
        if event.state is not None:
            return event if self is LiveTextForm.ASKED else None
        if not stored.ends_pieces(payload):
            return event if self.pieces else None
        return event._replace(payload=stored.without_text(payload)) if self in _MARKED else event


_MARKED = (LiveTextForm.MARK, LiveTextForm.ASKED)


FORMS: Mapping[str, LiveTextForm] = {'mark': LiveTextForm.MARK, 'replace': LiveTextForm.REPLACE}
"""The forms by the values of `Results.stream`, as far as all clients get pieces."""
