"""The result of a workflow: the end of a run as JSON, for the server of its task."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Union, cast

from pydantic import ConfigDict, TypeAdapter
from pydantic_ai import BinaryContent
from pydantic_ai.messages import ModelMessage
from pydantic_ai.tools import DeferredToolRequests
from pydantic_ai.usage import RunUsage
from pydantic_core import from_json, to_json

from ..server.agent.run_output import RunOutput
from ..server.conversion.artifacts import Artifacts
from ..server.conversion.output_types import NO_ANSWERS, declared_types
from ..server.runs.engine import AtEngine
from ..type_names import type_name
from ..wire.protocol import stored_values
from .temporal_json import JSON_CONFIG, as_object
from .temporal_names import STATES

logger = logging.getLogger('pydantic_ai_a2a')
_changed_outputs = set[Any]()
"""Types of outputs that the log has named, because their values change on their way from the workflow."""
_DEFERRED: TypeAdapter[list[Any]] = TypeAdapter(list[DeferredToolRequests], config=JSON_CONFIG)


@dataclass(frozen=True)
class _Rest:
    """The members of a `RunOutput` without its output, result and answer."""

    files: Sequence[BinaryContent]
    streamed: str | None
    messages: Sequence[ModelMessage]
    usage: RunUsage
    rewritten: Sequence[ModelMessage] | None = None
    waits: bool = False
    schemas: Mapping[str, dict[str, Any]] | None = None
    calls: Sequence[str] = ()
    shown: Sequence[str] = ()
    keeps_pending: bool = False
    whole: tuple[Sequence[ModelMessage], int] | None = None
    output: None = None
    """For servers of the version before, which need the member."""


@dataclass(frozen=True)
class _End:
    """The end of a run, as a JSON object."""

    __pydantic_config__: ClassVar[ConfigDict] = JSON_CONFIG

    kind: str
    """Name of the state that is the output; or number of the output's type among those of the agent; or empty for an
    output that only JSON has, and for each output of the versions before."""
    values: str
    """JSON array of the state's arguments, or of the output."""
    rest: _Rest
    artifacts: list[str] | None = None
    """The artifacts of the answer, as stored; None for an end without an answer."""
    text: str | None = None
    """The answer, if it is a text."""


_END: TypeAdapter[_End] = TypeAdapter(_End)


def dump_end(ended: RunOutput, app: AtEngine) -> bytes:
    """Write the end of a run."""
    output, answer = ended.output, ended.answer
    kind = next((name for name, state in STATES.items() if isinstance(output, state)), '')
    if kind:
        values = to_json([getattr(output, member.name) for member in fields(STATES[kind])])
    elif ended.waits:
        values = _DEFERRED.dump_json([output])
    else:
        kind, values = _dump_output(output, _outputs_of(app))
    plain = ended._replace(output=None)
    rest = _Rest(**{member.name: getattr(plain, member.name) for member in fields(_Rest)})
    end = _End(kind, values.decode(), rest)
    if answer is not None:
        artifacts, text = answer
        end = replace(
            end, artifacts=[stored_values.dump_artifact(artifact).decode() for artifact in artifacts], text=text
        )
    return _END.dump_json(end)


def load_end(body: bytes, app: AtEngine) -> RunOutput:
    """Read the JSON of `dump_end`, also of the version before."""
    end = _END.validate_json(as_object(body, _End, rest=RunOutput._fields))
    rest = RunOutput(**vars(end.rest))
    if end.artifacts is not None:
        rest = rest._replace(answer=([stored_values.load_artifact(item.encode()) for item in end.artifacts], end.text))
    if (state := STATES.get(end.kind)) is not None:
        return rest._replace(output=state(*from_json(end.values)[: len(fields(state))]))
    if rest.waits:
        return rest._replace(output=_DEFERRED.validate_json(end.values)[0])
    if end.artifacts is None:  # of the version before
        union = cast('Any', Union)[tuple(_outputs_of(app)) or (object,)]
        return rest._replace(output=_adapter_of(union).validate_json(end.values)[0])
    return rest._replace(output=_load_output(end, _outputs_of(app)))


def _dump_output(output: Any, kinds: Sequence[Any]) -> tuple[str, bytes]:
    """Return the number of the type of an output among those of the agent, and the JSON that is read as this output.

    The number is empty if no type reads its JSON as an equal value, such as after a validator that changes each value.
    """
    for kind in sorted(kinds, key=lambda kind: kind is not type(output)):  # first the class of the output
        with suppress(Exception):  # also of a validator of the user, for the output of another type
            adapter = _adapter_of(kind)
            body = adapter.dump_json([output], by_alias=False, round_trip=True, warnings='error')
            [back] = _read_output(adapter, body)
            if type(back) is type(output) and back == output:
                return f'{kinds.index(kind)}', body
    body = to_json([output], bytes_mode='base64', inf_nan_mode='strings', fallback=_plain)
    if not _equal(from_json(body), [output]) and type(output) not in _changed_outputs:
        _changed_outputs.add(type(output))
        logger.warning(
            'Outputs of the type %s change on their way from a workflow: on_complete gets their JSON, and clients get'
            ' them unchanged.',
            type_name(type(output)),
        )
    return '', body


def _plain(value: object) -> object:
    """Return values with JSON in the place of an object that Pydantic cannot write."""
    return {**value} if isinstance(value, Artifacts) else repr(value)


def _equal(value: object, other: object) -> bool:
    with suppress(Exception):  # of a class whose comparison is no bool, such as an array
        return bool(value == other)
    return False


def _load_output(end: _End, kinds: Sequence[Any]) -> Any:
    """Return the output of an end for the hooks: as its type, or else as JSON."""
    if end.kind:
        try:
            return _read_output(_adapter_of(kinds[int(end.kind)]), end.values.encode())[0]
        except Exception:  # also of a validator of the user, in another process than before
            logger.warning('on_complete gets the JSON of an output that this process cannot read as its type.')
    return from_json(end.values)[0]


def _read_output(adapter: TypeAdapter[list[Any]], body: bytes) -> list[Any]:
    return adapter.validate_json(body, by_alias=False, by_name=True)


def _adapter_of(kind: Any) -> TypeAdapter[list[Any]]:
    return TypeAdapter(cast('Any', list)[kind], config=JSON_CONFIG)


def _outputs_of(app: AtEngine) -> list[Any]:
    """Return the types of the answers of an agent."""
    return [kind for kind in declared_types(app.runner.output_type) if kind not in NO_ANSWERS]
