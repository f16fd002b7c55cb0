"""A run's output as A2A artifacts, by the agent's declared output types."""

from __future__ import annotations

import inspect
import mimetypes
import reprlib
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, lru_cache, partial
from math import isfinite
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, Union, cast, get_args, get_origin, get_type_hints

from pydantic import GetCoreSchemaHandler, TypeAdapter, ValidationError
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic_ai.exceptions import UnexpectedModelBehavior, UserError
from pydantic_ai.messages import (
    AudioMediaType,
    AudioUrl,
    BinaryAudio,
    BinaryContent,
    BinaryImage,
    FileUrl,
    ImageMediaType,
    ImageUrl,
    VideoMediaType,
    VideoUrl,
)
from pydantic_ai.output import NativeOutput, OutputSpec, PendingModelResponse, PromptedOutput, TextOutput, ToolOutput
from pydantic_ai.tools import DeferredToolRequests
from pydantic_core import CoreSchema, core_schema, from_json, to_json

from ..errors import ContentTypeNotSupportedError
from ..types import PARTIAL, Artifact, Part, dump_json
from .message_limits import MOST_LEVELS, is_deep
from .pending_calls import STATES
from .user_prompts import OCTET_STREAM, in_ranges, media_range


class UnserializableOutput(TypeError):
    """The agent's output cannot be written as JSON. Never sent to a client."""


class NotFinite(UnexpectedModelBehavior):
    """The output holds NaN or infinity, which JSON has no number for. Never sent to a client."""


class Artifacts(Mapping[str, Any]):
    """Named artifacts as the result of a run, returned by an output function.

    ```python
    from pydantic_ai import Agent

    from pydantic_ai_a2a import Artifacts


    def report(city: str) -> Artifacts:
        return Artifacts({'raw data': [1, 2, 3]}, summary=f'All is well in {city}.')


    agent = Agent('test', output_type=report)
    ```

    A value may be a string, a file (`BinaryContent`, `ImageUrl` and the like), a list of files, or any value for
    Pydantic's JSON. Use the mapping for names with spaces and the like.

    Raises:
        ValueError: The result has no artifact, or an artifact has no name.
    """

    __slots__ = ('_artifacts',)

    def __init__(self, artifacts: Mapping[str, Any] | None = None, /, **named: Any) -> None:
        self._artifacts = {**(artifacts or {}), **named}
        if not self._artifacts or '' in self._artifacts:
            raise ValueError('Artifacts needs at least one artifact, and a name for each.')

    def __getitem__(self, name: str) -> Any:
        return self._artifacts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._artifacts)

    def __len__(self) -> int:
        return len(self._artifacts)

    def __repr__(self) -> str:
        return f'Artifacts({self._artifacts!r})'

    @classmethod
    def __get_pydantic_core_schema__(cls, source: type[Any], handler: GetCoreSchemaHandler) -> CoreSchema:
        values = core_schema.dict_schema(core_schema.str_schema(min_length=1), core_schema.any_schema(), min_length=1)
        built = core_schema.no_info_after_validator_function(cls, values)
        return core_schema.json_or_python_schema(
            json_schema=built,
            python_schema=core_schema.union_schema([core_schema.is_instance_schema(cls), built]),
            serialization=core_schema.plain_serializer_function_ser_schema(dict, return_schema=values),
        )


_ANY: TypeAdapter[Any] = TypeAdapter(Any)
"""Writes values by their runtime type, if the declared type has no schema."""
NO_ANSWERS = (DeferredToolRequests, PendingModelResponse, *STATES)
"""Output types for the end of a run without an answer."""


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


PLAIN = 'text/plain'


class OutputModes(NamedTuple):
    """The media types that one client accepts."""

    text: bool
    """True if text may be sent as text."""
    json: bool
    """True if data may be sent as JSON."""
    ranges: frozenset[str]
    """Media types, `type/*` and `*/*`, in lower case and without parameters."""
    text_type: str = PLAIN
    """The media type of the agent's text."""

    def takes(self, media_type: str) -> bool:
        """Return True if content of the type may be sent unchanged."""
        return in_ranges(media_range(media_type), self.ranges)


EVERYTHING = OutputModes(text=True, json=True, ranges=frozenset({'*/*'}))
"""The modes of a client that names none."""


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


# --- the types of an agent's outputs, read from its `output_type` -----------------------------------------------------

_WRAPPED: dict[type[Any], str] = {
    NativeOutput: 'outputs',
    PromptedOutput: 'outputs',
    TextOutput: 'output_function',
    ToolOutput: 'output',
}
"""Attribute with the output types, for each of Pydantic AI's markers."""
_UNIONS = (Union, types.UnionType)


def declared_types(spec: object) -> Iterator[Any]:
    """Yield the types of an output specification, as `AbstractAgent.output_json_schema` lists them.

    Raises:
        TypeError: The specification is none.
    """
    if isinstance(spec, str | bytes | int | float | Mapping):
        raise TypeError(
            'output_type takes a type, a function, an output such as ToolOutput, or a list of these, not '
            f'{reprlib.repr(cast("Any", spec))}.'
        )
    if wrapped := _WRAPPED.get(type(spec)):
        yield from declared_types(getattr(spec, wrapped))
    elif isinstance(spec, Sequence):
        for item in cast('Sequence[Any]', spec):
            yield from declared_types(item)
    elif _is_function(spec):
        yield from declared_types(_returned(spec))
    else:
        yield from _union_members(spec) or (spec,)


def _is_function(spec: object) -> bool:
    return isinstance(spec, partial) or inspect.isfunction(spec) or inspect.ismethod(spec)


def has_output_functions(spec: object) -> bool:
    """Return True if a function of the user makes an output."""
    if isinstance(spec, TextOutput):
        return True
    if wrapped := _WRAPPED.get(type(spec)):
        return has_output_functions(getattr(spec, wrapped))
    if isinstance(spec, Sequence):
        return any(map(has_output_functions, cast('Sequence[Any]', spec)))
    return _is_function(spec)


def _returned(function: Any) -> Any:
    """Return the declared result of an output function; text by default, as in Pydantic AI."""
    if isinstance(function, partial):
        function = cast('partial[Any]', function).func
    return get_type_hints(function, include_extras=True).get('return', str)


def answers_in_text(spec: Any) -> bool:
    """Return True if the model's text is the output, without an output function."""
    if isinstance(spec, Sequence):
        return any(answers_in_text(item) for item in cast('Sequence[Any]', spec))
    return spec is str or str in _union_members(spec)


def _union_members(tp: Any) -> tuple[Any, ...]:
    bare = _bare(tp)
    return get_args(bare) if get_origin(bare) in _UNIONS else ()


def _bare(tp: Any) -> Any:
    """Return a type without its annotations and aliases."""
    while True:
        if get_origin(tp) is Annotated:
            tp = tp.__origin__
        elif hasattr(tp, '__value__'):
            tp = tp.__value__
        else:
            return tp


def file_types(tp: Any) -> list[type[File]]:
    """Return the file classes in a type, list, tuple or union; empty if it includes other types."""
    bare = _bare(tp)
    if isinstance(bare, type) and issubclass(bare, File):
        return [bare]
    if get_origin(bare) not in {list, tuple, *_UNIONS}:
        return []
    items = [file_types(item) for item in get_args(bare) if item is not ...]
    return [file for item in items for file in item] if all(items) else []


def type_name(tp: Any) -> str:
    """Return a type as written in code, without its modules."""
    if tp is None or tp is type(None):
        return 'None'
    if tp is ...:
        return '...'
    origin, args = get_origin(tp), get_args(tp)
    if origin is None:
        return getattr(tp, '__name__', str(tp))
    if origin is Annotated:
        return type_name(args[0])
    if origin in _UNIONS:
        return ' | '.join(map(type_name, args))
    inner = map(repr if origin is Literal else type_name, args)
    return f'{type_name(origin)}[{", ".join(inner)}]'


# --- the media types that a client accepts (`acceptedOutputModes`, A2A 1.0 §3.2.2), and parts converted to fit --------

_STRING = {'json_schema': {'type': 'string'}, 'python_type': 'str'}
"""Metadata of text that is sent as data; shared, so it must not be changed."""


class UnacceptableOutput(UnexpectedModelBehavior):
    """The client accepts nothing of the agent's output. Never sent to a client."""


def output_modes(names: Sequence[str], *, text: Iterable[str] = (), json: Iterable[str] = ()) -> OutputModes:
    """Read the modes that a client names.

    Args:
        names: At least one: media types, with or without parameters, and ranges. A bare `text` is `text/*`, as clients
            of 0.3 write it.
        text: The media types of text on the agent's card, besides `text/plain`.
        json: The media types of data on the agent's card, besides `application/json`.
    """
    modes = OutputModes(False, False, frozenset(map(media_range, names)))
    return OutputModes(
        text=any(map(modes.takes, ('text/plain', *text))),
        json=any(map(modes.takes, ('application/json', *json))),
        ranges=modes.ranges,
    )


def fitting(named: Iterable[tuple[str, list[Part]]], accepted: OutputModes) -> list[tuple[str, list[Part]]]:
    """Return the named parts that the client accepts, with text and data converted.

    Raises:
        UnacceptableOutput: The client accepts none of the parts.
    """
    converted = ((name, [_converted(part, accepted) for part in parts]) for name, parts in named)
    taken = ((name, [part for part in parts if part is not None]) for name, parts in converted)
    if not (rest := [(name, parts) for name, parts in taken if parts]):
        raise UnacceptableOutput('The output has no media type that the client accepts.')
    return rest


def with_json(parts: Iterable[Part], accepted: OutputModes) -> list[Part]:
    """Return the parts, with a text part after each data part that holds its result as JSON."""
    followed = list[Part]()
    for part in parts:
        followed.append(part)
        if 'data' in part:
            followed.append(Part(text=_json(part['data']), media_type=_type_of_json(accepted)))
    return followed


def _json(data: Any) -> str:
    """Return the result of a data part as JSON."""
    return to_json(data['result']).decode()


def _type_of_json(accepted: OutputModes) -> str:
    """Return the media type of JSON as text. The type of the agent's text is another one, if the client accepts it."""
    return PLAIN if accepted.takes(PLAIN) else accepted.text_type


def _converted(part: Part, accepted: OutputModes) -> Part | None:
    if 'text' in part:
        if accepted.text or not accepted.json:
            return part if accepted.text else None
        return Part(data={'result': part['text']}, media_type='application/json', metadata=_STRING)
    if 'data' in part:
        if accepted.json or not accepted.text:
            return part if accepted.json else None
        return Part(text=_json(part['data']), media_type=_type_of_json(accepted), metadata=part.get('metadata', {}))
    return part if accepted.takes(part.get('media_type', OCTET_STREAM)) else None


# --- files in an agent's output, as A2A parts -------------------------------------------------------------------------

File: TypeAlias = BinaryContent | FileUrl
"""A file by its bytes or by its URL."""


def file_part(file: File) -> Part:
    """Return a file as a `raw` part, or as a `url` part."""
    if isinstance(file, BinaryContent):
        return Part(raw=file.base64, media_type=file.media_type, filename=_filename(file))
    part = Part(url=file.url)
    with suppress(ValueError):  # the media type is unknown
        part['media_type'] = file.media_type
    if file.identifier != type(file)(file.url).identifier:  # else Pydantic AI has derived the identifier from the URL
        part['filename'] = file.identifier
    return part


def _filename(file: BinaryContent) -> str:
    """Return the file's identifier, with an extension that says its type."""
    try:
        extension = f'.{file.format}'
    except ValueError:
        extension = mimetypes.guess_extension(file.media_type) or ''
    name = file.identifier
    is_complete = name.lower().endswith(extension) or mimetypes.guess_type(f'/{name}')[0] == file.media_type
    return name if is_complete else f'{name}{extension}'


def file_modes(kind: type[File]) -> tuple[str, ...]:
    """Return the media types of a class of files, for the agent card."""
    if issubclass(kind, BinaryImage | ImageUrl):
        return get_args(ImageMediaType)
    if issubclass(kind, BinaryAudio):
        return ('audio/wav', 'audio/mpeg')
    if issubclass(kind, AudioUrl):
        return get_args(AudioMediaType)
    return get_args(VideoMediaType) if issubclass(kind, VideoUrl) else (OCTET_STREAM,)


# --- numbers that JSON cannot hold ------------------------------------------------------------------------------------
# NaN and infinity, which Pydantic writes as null, and as the key `None`.


def lost_number(value: Any, written: Any, path: str) -> str | None:
    """Return the path of the first float that was written as null or as the key `None`; None without such a float.

    Args:
        value: The output as Python values.
        written: The output as JSON values.
        path: Path of both.
    """
    if written is None:
        return path if isinstance(value, float) and not isfinite(value) else None
    pairs: Iterable[tuple[Any, tuple[Any, Any]]] = ()
    if isinstance(written, dict) and isinstance(value, Mapping):
        mapping = cast('Mapping[Any, Any]', value)
        if 'None' in written and (keys := [key for key in mapping if isinstance(key, float) and not isfinite(key)]):
            return f'{path}[{keys[0]!r}]'
        pairs = zip(mapping.values(), cast('dict[str, Any]', written).items(), strict=False)
    elif isinstance(written, list) and isinstance(value, Iterable):
        pairs = zip(cast('Iterable[Any]', value), enumerate(cast('list[Any]', written)), strict=False)
    paths = (lost_number(inner, json, f'{path}[{key!r}]') for inner, (key, json) in pairs)
    return next((inner for inner in paths if inner is not None), None)
