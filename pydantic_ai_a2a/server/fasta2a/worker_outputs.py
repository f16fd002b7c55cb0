"""The outputs of a worker's agent as artifacts: by the worker's own method, and in the form of FastA2A."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from fasta2a.schema import Artifact, Part
from pydantic_ai.output import OutputSpec

from ...wire.protocol.fasta2a_dialect import own_part
from ..conversion.output_mapper import OutputMapper


class WorkerOutputs(OutputMapper):
    """Makes artifacts with a worker's own `build_artifacts`; without one, by the type of the output.

    Args:
        output_type: See `OutputMapper`.
        modes: See `OutputMapper`.
        data_as_text: See `OutputMapper`.
        build: The worker's own `build_artifacts`, if any.
    """

    def __init__(
        self,
        output_type: OutputSpec[Any],
        modes: Sequence[str] | None = None,
        *,
        data_as_text: bool = False,
        build: Callable[[Any], list[Artifact]] | None = None,
    ) -> None:
        super().__init__(output_type, modes, data_as_text=data_as_text)
        self.holds_data = self.holds_data and build is None
        self._build = build

    @property
    def schema(self) -> dict[str, Any] | None:
        """See `OutputMapper.schema`. A user's own artifacts have any form."""
        return super().schema if self._build is None else None

    def artifacts(self, output: Any, *, artifact_id: str, **options: Any) -> list[Artifact]:
        """See `OutputMapper.artifacts`. A user's own artifacts stay unchanged, except for the first artifact's id."""
        if self._build is None:
            return self.by_type(output, artifact_id=artifact_id, **options)
        built = [artifact.copy() for artifact in self._build(output)]
        if built:
            built[0]['artifact_id'] = artifact_id
        return built

    def by_type(self, output: Any, **options: Any) -> list[Artifact]:
        """Return the artifacts by the output's type, without `build_artifacts`."""
        return super().artifacts(output, **options)


def in_fasta2as_form(artifacts: Iterable[Artifact]) -> list[Artifact]:
    """Convert artifacts to the form of FastA2A's bridge: media types for files only, and data with its schema alone."""
    return [
        {**artifact, 'parts': [cast('Part', own_part(part, 'media_type')) for part in artifact['parts']]}
        for artifact in artifacts
    ]
