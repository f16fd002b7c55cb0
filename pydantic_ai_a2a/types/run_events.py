"""What a run tells while it goes on: text, notes, steps and artifacts."""

from __future__ import annotations

from typing import NamedTuple

from .a2a_objects import Artifact, Part

PARTIAL = {'progress': 'partial'}
"""Metadata of the artifact of a partial output."""


class TextDelta(NamedTuple):
    """Text that the model adds to the answer's artifact."""

    text: str
    first: bool
    """True if a new answer begins: the text replaces the artifact, and is not appended."""


class Note(NamedTuple):
    """A text for the client beside the answer, as the status of the working task."""

    text: str
    of_model: bool = False
    """True for the text of a model response with tool calls; False for a text of the user's code."""


class Step(NamedTuple):
    """A thought or an action of the agent: a status update for watching clients, not stored with the task."""

    part: Part
    metadata: dict[str, str]
    """Metadata of the update's message, with the kind of the step."""


class PartialArtifact(NamedTuple):
    """The artifact of a partial output, until the next one or the answer replaces the artifact."""

    artifact: Artifact


class ToolArtifact(NamedTuple):
    """An artifact from a tool, stored with the task before the answer."""

    artifact: Artifact
