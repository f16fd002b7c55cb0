"""The text of an answer while it comes. Each event adds its own text: no step copies the text before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ..types.a2a_objects import Artifact, Message, Part
from .answer_content import as_lines, is_line, is_space_between, joined_pieces, parts_text, shown_parts
from .updates import Update


@dataclass(slots=True)
class _Text:
    """The text of an artifact or of a message."""

    place: int
    """Place among the texts of the answer."""
    name: str = ''
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    pieces: list[str] = field(default_factory=list[str])
    length: int = 0
    is_void: bool = False
    """True if the text was removed, and no other text has come in its place."""
    is_alike: bool = False
    """True if the text and the text before may be pieces of one text: see `joined_pieces`."""
    is_piece: bool = False
    """True if they are."""

    def put(self, pieces: list[str]) -> None:
        self.pieces, self.length = pieces, sum(map(len, pieces))


class LiveText:
    """The text of an answer while it comes: in the artifacts of a task, or in messages without a task."""

    def __init__(self) -> None:
        self._texts: dict[str, _Text] = {}
        self._last: _Text | None = None
        """The text that the last piece belongs to."""

    def add(self, update: Update) -> Iterator[tuple[str, bool]]:
        """Yield the text that an event adds, and False; or text in the place of all text before, and True.

        Artifacts are on lines of their own, unless they are the pieces of one text. Text for an earlier artifact than
        the last one comes in the place of the text before, too.
        """
        event = update.event
        if 'artifact_update' in event:
            artifact = event['artifact_update']['artifact']
            append = bool(event['artifact_update'].get('append'))
            yield from self._artifact(artifact['artifact_id'], artifact, append=append)
        elif 'task' in event:
            for artifact in event['task'].get('artifacts', ()):
                yield from self._artifact(artifact['artifact_id'], artifact, append=False)
        elif 'message' in event and update.state is None:
            yield from self._message(event['message'])

    def _artifact(self, key: str, artifact: Artifact, *, append: bool) -> Iterator[tuple[str, bool]]:
        known = self._text(key)
        known.name = artifact.get('name', '')
        if not append or 'metadata' in artifact:
            known.metadata = artifact.get('metadata', {})
        parts = _shown(artifact['parts'], known.metadata)
        if append or not known.length:
            yield from self._grown(known, parts_text(parts))
        else:
            yield from self._replaced(known, parts_text(parts))

    def _message(self, message: Message) -> Iterator[tuple[str, bool]]:
        """Yield the text of a message, which is a piece of the message before with its id or its metadata."""
        known = self._texts.get(message['message_id'], self._last)
        metadata = message.get('metadata', {})
        if known is None or (message['message_id'] not in self._texts and known.metadata != metadata):
            known = self._text(message['message_id'] or f'\n{len(self._texts)}')
            known.metadata, known.is_void = metadata, self._last is not None
        yield from self._grown(known, parts_text(_shown(message['parts'], metadata)))

    def _text(self, key: str) -> _Text:
        return self._texts.setdefault(key, _Text(len(self._texts)))

    def _grown(self, text: _Text, piece: str) -> Iterator[tuple[str, bool]]:
        if not piece:
            return
        text.pieces.append(piece)
        text.length += len(piece)
        last, self._last = self._last, text
        follows = not text.is_void and (last is None or text.place >= last.place)
        text.is_void = False
        if not follows or last in (None, text):
            yield piece, not follows
        elif len(text.pieces) > 1 or last.name != text.name:
            yield f'\n{piece}', False
        else:
            yield self._following(last, text, piece)

    def _following(self, last: _Text, text: _Text, piece: str) -> tuple[str, bool]:
        """Return the first piece of a text after another one of the same name, as `add` yields it."""
        before = ''.join(last.pieces)
        text.is_alike = is_line(before) and is_line(piece)
        text.is_piece = text.is_alike and (last.is_piece or is_space_between(before, piece))
        if text.is_piece and last.is_alike and not last.is_piece:  # the texts before have line breaks between them
            texts = [(text.name, [Part(text=''.join(text.pieces))]) for text in self._texts.values() if text.length]
            return as_lines(joined_pieces(texts)), True
        return piece if text.is_piece else f'\n{piece}', False

    def _replaced(self, text: _Text, whole: str) -> Iterator[tuple[str, bool]]:
        # A text that is shorter needs no comparison, so that no step copies more than the event holds.
        before = ''.join(text.pieces) if len(whole) >= text.length else None
        if before is not None and whole.startswith(before):
            text.put([before])
            yield from self._grown(text, whole[len(before) :])
        else:
            text.put([])
            text.is_void = True
            yield from self._grown(text, whole)


def _shown(parts: list[Part], metadata: dict[str, Any]) -> list[Part]:
    return shown_parts(Artifact(artifact_id='', parts=parts, metadata=metadata))
