"""The pieces of a text artifact, of which an answer may have thousands."""

from __future__ import annotations

from ...json_values import dump_json
from .stored import PLAIN, ids


class TextArtifact:
    """Writes the pieces of one text artifact from prebuilt bytes, because there may be thousands of pieces."""

    __slots__ = ('_head', '_tail')

    def __init__(self, task_id: str, context_id: str, artifact_id: str, name: str, media_type: str = PLAIN) -> None:
        names = b'"artifactId":' + dump_json(artifact_id) + b',"name":' + dump_json(name)
        self._head = b'{"artifactUpdate":{"artifact":{' + names + b',"parts":[{"text":'
        self._tail = b',"mediaType":' + dump_json(media_type) + b'}]},' + ids(task_id, context_id)

    def piece(self, text: str, *, first: bool) -> bytes:
        """Write a `StreamResponse` with one piece (§4.2.2): the first replaces, later pieces append."""
        return self._head + dump_json(text) + self._tail + (b'}}' if first else b',"append":true}}')
