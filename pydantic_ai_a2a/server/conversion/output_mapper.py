"""A run's output as A2A artifacts, by the agent's declared output types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, lru_cache
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import BinaryContent
from pydantic_ai.output import OutputSpec
from pydantic_core import from_json

from ...errors import ContentTypeNotSupportedError
from ...json_values import dump_json
from ...type_names import type_name
from ...types.a2a_objects import Artifact, Part
from ...types.run_events import PARTIAL
from ...wire.parts.file_parts import File, file_part
from ...wire.parts.media_types import OCTET_STREAM
from ...wire.schemas.json_depth import MOST_LEVELS, is_deep
from .artifacts import Artifacts
from .output_modes import (
    EVERYTHING,
    PLAIN,
    OutputModes,
    UnacceptableOutput,
    file_modes,
    fitting,
    output_modes,
    with_json,
)
from .output_types import NO_ANSWERS, answers_in_text, declared_types, file_types
from .unwritable_outputs import NotFinite, UnserializableOutput, lost_number

_ANY: TypeAdapter[Any] = TypeAdapter(Any)
"""Writes values by their runtime type, if the declared type has no schema."""


@dataclass(frozen=True, eq=False)
class _Member:
    """An output type of an agent."""

    type: Any
    adapter: TypeAdapter[Any]
    metadata: dict[str, Any]
    """Metadata of the data part; shared by all results, so it must not be changed."""

    def holds(self, value: Any) -> bool:
        """Return True if the value is of the type."""
        with suppress(TypeError):  # a generic alias, a TypedDict, a protocol
            if isinstance(value, self.type):
                return True
        if self.adapter is _ANY:
            return False
        try:
            self.adapter.validate_python(value, strict=True)
        except (ValidationError, TypeError, AttributeError, LookupError):
            # A user's validator raises the other errors for a value of another member of the union.
            return False
        return True

    def part(self, value: Any) -> Part:
        """Return the value as a data part.

        Raises:
            NotFinite: The value holds NaN or infinity.
            UnserializableOutput: The value cannot be written as JSON, or is nested too deeply for clients.
        """
        try:
            written = _json_of(self.adapter, value)
            result = from_json(written, allow_inf_nan=False)
            may_be_lost = b'null' in written or b'"None"' in written
            dumped = self.adapter.dump_python(value, by_alias=True, warnings=False) if may_be_lost else None
        except (ValueError, TypeError, RecursionError) as error:
            raise UnserializableOutput(
                f'The output, {type(value).__name__} for {self.metadata["python_type"]}, cannot be written as JSON.'
            ) from error
        if may_be_lost and (where := lost_number(dumped, result, 'result')) is not None:
            raise NotFinite(f'{where} of the output is NaN or infinite, which JSON cannot represent.')
        if len(written) >= 2 * MOST_LEVELS and is_deep(written, result, MOST_LEVELS - 1):
            raise UnserializableOutput(f'The output is nested more than {MOST_LEVELS} deep.')
        return Part(data={'result': result}, media_type='application/json', metadata=self.metadata)


class OutputMapper:
    """Converts outputs of one agent's runs into artifacts.

    Args:
        output_type: The agent's `output_type`.
        modes: Media types of the output on the card; None or empty for the media types of `output_type`.
        data_as_text: True if a text part with the JSON follows each data part.
    """

    text: bool
    """True if a string is among the declared types: then strings become text parts."""
    streams_text: bool
    """True if the model's text is the output, without an output function."""
    holds_data: bool
    """True if an output can be data, which may hold numbers."""
    modes: list[str]
    """Media types of the output, for the agent card."""
    everything: OutputModes
    """The modes of a client that names none."""

    def __init__(
        self, output_type: OutputSpec[Any], modes: Sequence[str] | None = None, *, data_as_text: bool = False
    ) -> None:
        declared = [tp for tp in declared_types(output_type) if tp not in NO_ANSWERS]
        data = [tp for tp in declared if tp is not str and tp is not Artifacts and not file_types(tp)]
        several = Artifacts in declared
        self.text = str in declared
        self.streams_text = answers_in_text(output_type)
        self.holds_data = bool(data) or several
        files = list(dict.fromkeys(mode for tp in declared for file in file_types(tp) for mode in file_modes(file)))
        derived = [
            *(('text/plain',) if self.text or several or (data and data_as_text) else ()),
            *(('application/json',) if data or several else ()),
            *files,
        ] or ['text/plain']
        self.modes = list(modes or derived)
        self._called_text = [mode for mode in self.modes if mode.startswith('text/')]
        self.everything = self._with_text_type(EVERYTHING)
        self._called_json = [mode for mode in self.modes if mode.endswith('+json')]
        self._always_files = derived == files
        self._files = files
        self._data_as_text = data_as_text
        self._any_named = several
        self._any_files = several or OCTET_STREAM in files
        self._members = [_member(tp) for tp in data]

    def accepted(self, names: Sequence[str]) -> OutputModes:
        """Return the output modes of a client that names these modes."""
        if not names:
            return self.everything
        return self._with_text_type(output_modes(names, text=self._called_text, json=self._called_json))

    def _with_text_type(self, modes: OutputModes) -> OutputModes:
        """Return the modes with the first media type of text on the card that the client accepts."""
        called = next((mode for mode in self._called_text if '*' not in mode and modes.takes(mode)), PLAIN)
        return modes if called == PLAIN else modes._replace(text_type=called)

    def check(self, names: Sequence[str]) -> None:
        """Refuse a client that accepts none of the agent's possible outputs.

        Raises:
            ContentTypeNotSupportedError: None of the client's modes fits.
        """
        modes = self.accepted(names)
        if self._any_files or any(map(modes.takes, self._files)):
            return
        if self._always_files or not (modes.text or modes.json):
            field = 'configuration.acceptedOutputModes'
            problem = f'{field}: the agent returns none of these types. It returns {", ".join(self.modes)}.'
            raise ContentTypeNotSupportedError(problem, metadata={'field': field})

    def artifacts(
        self,
        output: Any,
        *,
        artifact_id: str,
        files: Sequence[BinaryContent] = (),
        accepted: OutputModes | None = None,
    ) -> list[Artifact]:
        """Return the artifacts of a run.

        Args:
            output: The output of the run.
            artifact_id: Id of the first artifact; further artifacts get `-2`, `-3`, ... behind it.
            files: The files in the run's last response; they go into the first artifact, unless they are the output.
            accepted: The client's modes, by default `everything`. Text and data are converted; other content that does
                not fit is left out.

        Raises:
            UnserializableOutput: The output cannot be written as JSON.
            NotFinite: The output holds NaN or infinity.
            UnacceptableOutput: The client accepts nothing of the output.
        """
        accepted = accepted or self.everything
        if isinstance(output, Artifacts):
            named = [(name, _parts(value, _runtime_member, accepted.text_type)) for name, value in output.items()]
        else:
            text_type = accepted.text_type if self.text or not self._members else None
            named = [('result', _parts(output, self._member_of, text_type))]
        if accepted is not self.everything:
            named = fitting(named, accepted)
            files = [file for file in files if accepted.takes(file.media_type)]
        if self._data_as_text and accepted.text:
            named = [(name, with_json(parts, accepted)) for name, parts in named]
        if files:
            _add_files(named[0][1], files)
        return [
            Artifact(artifact_id=f'{artifact_id}-{n}' if n > 1 else artifact_id, name=name, parts=parts)
            for n, (name, parts) in enumerate(named, 1)
        ]

    def partial_artifacts(self, output: Any, *, artifact_id: str, accepted: OutputModes) -> list[Artifact]:
        """Return the artifacts of a partial output: only data, marked as partial, without the schema of the data."""
        if isinstance(output, NO_ANSWERS):
            return []
        try:
            artifacts = self.artifacts(output, artifact_id=artifact_id, accepted=accepted)
        except (NotFinite, UnacceptableOutput, UnserializableOutput):
            return []
        return [
            Artifact(artifact_id=artifact['artifact_id'], name=artifact.get('name', ''), parts=data, metadata=PARTIAL)
            for artifact in artifacts
            if (data := [_bare_data(part) for part in artifact['parts'] if 'data' in part])
        ]

    def not_finite(self, output: Any) -> str | None:
        """Return the fault of an output with NaN or infinity; None for other outputs."""
        if not isinstance(output, NO_ANSWERS):
            try:
                self.artifacts(output, artifact_id='')
            except NotFinite as error:
                return str(error)
            except UnserializableOutput:
                pass  # the model cannot repair this error: the run fails at its result
        return None

    def _member_of(self, value: Any) -> _Member:
        """Return the declared type of a value: its class, else the first type that holds it, else the union of all."""
        if len(self._members) == 1:
            return self._members[0]
        if not self._members:
            return _runtime_member(value)
        exact = (member for member in self._members if member.type is type(value))
        held = (member for member in self._members if member.holds(value))
        return next(exact, None) or next(held, None) or self._union

    @property
    def schema(self) -> dict[str, Any] | None:
        """JSON Schema of the `result` in a data part; None without data, and for data of any form."""
        schemas = [member.metadata['json_schema'] for member in self._members]
        if self._any_named or not all(schemas):
            return None
        return schemas[0] if len(schemas) == 1 else self._union.metadata['json_schema'] if schemas else None

    @cached_property
    def _union(self) -> _Member:
        schemas, definitions = TypeAdapter[Any].json_schemas(
            (n, 'serialization', member.adapter) for n, member in enumerate(self._members)
        )
        name = ' | '.join(member.metadata['python_type'] for member in self._members)
        return _Member(Any, _ANY, _metadata({'anyOf': list(schemas.values()), **definitions}, name))


def text_of(output: Any) -> str | None:
    """Return the output if it is text; members of string enumerations are not."""
    return output if isinstance(output, str) and not isinstance(output, Enum) else None


def _parts(value: Any, member_of: Callable[[Any], _Member], text_type: str | None) -> list[Part]:
    if text_type is not None and (output := text_of(value)) is not None:
        return [Part(text=output, media_type=text_type)]
    if isinstance(value, File):
        return [file_part(value)]
    if isinstance(value, (list, tuple)) and value:
        items = cast('Sequence[Any]', value)
        if all(isinstance(item, File) for item in items):
            return [file_part(item) for item in items]
    return [member_of(value).part(value)]


def _bare_data(part: Part) -> Part:
    return Part(data=part.get('data'), media_type='application/json')


def _add_files(parts: list[Part], files: Sequence[BinaryContent]) -> None:
    """Add the missing files to `parts`: an image output is also a file of the response."""
    there = {(part.get('media_type'), part.get('raw')) for part in parts}
    new = (file_part(file) for file in files)
    parts.extend(part for part in new if (part.get('media_type'), part.get('raw')) not in there)


def _metadata(json_schema: dict[str, Any], python_type: str) -> dict[str, Any]:
    return {'json_schema': json_schema, 'python_type': python_type}


def _member(tp: Any) -> _Member:
    name = type_name(tp)
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(tp)
        schema = adapter.json_schema(mode='serialization')
    except (PydanticUserError, PydanticUndefinedAnnotation, UserError):
        # An output function may return any class. Pydantic AI does not validate the returned value.
        return _Member(tp, _ANY, _metadata({}, name))
    # A `StructuredDict` is a private class. The schema has the name from the user.
    return _Member(tp, adapter, _metadata(schema, schema.get('title', 'dict') if name.startswith('_') else name))


@lru_cache(maxsize=256)
def _member_of_class(tp: type[Any]) -> _Member:
    return _member(tp)


def _runtime_member(value: object) -> _Member:
    return _member_of_class(type(value))


def _json_of(adapter: TypeAdapter[Any], value: Any) -> bytes:
    """Write a value as JSON. Lone surrogates become U+FFFD.

    Raises:
        ValueError: The value cannot be written.
    """
    try:
        return adapter.dump_json(value, by_alias=True, warnings=False)
    except ValueError:
        return dump_json(adapter.dump_python(value, mode='json', by_alias=True, warnings=False))
