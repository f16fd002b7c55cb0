"""What DBOS stores of a workflow, so that a later version of the package reads it.

DBOS stores pickles, which hold the paths of the modules of classes. So the end of a run is stored as values by names,
and its failure as an `Exception` with the values of an `EngineFailure`. The classes that users give to DBOS, such as
`InputRequired`, are pickled by their public names. A process of another version leaves out members of an end that it
does not know, so members are never renamed.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

from .. import errors
from ..server.agent.run_output import RunOutput
from ..server.conversion.artifacts import Artifacts
from ..server.conversion.chosen_states import AuthRequired, InputRequired, NoCredential, Rejected
from ..server.conversion.failures import EngineFailure
from ..server.runs.workflow_run import Canceled

_FAILURE = 'pydantic_ai_a2a'
"""First argument of the stored failure of a run."""
_STATES = {kind.__name__: kind for kind in (AuthRequired, InputRequired, NoCredential, Rejected)}
_ERRORS = {name: value for name, value in vars(errors).items() if isinstance(value, type)}

_MOVED: Mapping[str, Mapping[str, type[Any]]] = {
    'pydantic_ai_a2a.agent.runner': {'RunOutput': RunOutput},
    'pydantic_ai_a2a.conversion.outbound': {'Artifacts': Artifacts},
    'pydantic_ai_a2a.conversion.pending': _STATES,
    'pydantic_ai_a2a.conversion.stream': {'EngineFailure': EngineFailure},
    'pydantic_ai_a2a.engines.dbos_values': {'WorkflowFailed': EngineFailure},
    'pydantic_ai_a2a.engines.engine': {'Canceled': Canceled},
    'pydantic_ai_a2a.errors': _ERRORS,
}
"""Paths of modules in pickles of earlier versions, with the names and classes that stood there."""

for _path, _classes in _MOVED.items():
    # DBOS reads such pickles with its own serializer, whatever serializer it is given.
    try:
        _module = import_module(_path)
    except ModuleNotFoundError:
        _module = sys.modules[_path] = ModuleType(_path)
    vars(_module).update(_classes)


def dump(ended: RunOutput) -> dict[str, Any]:
    """Return the end of a run by names."""
    fields = ended._asdict()
    return {**fields, 'output': None, 'canceled': ended.output.text} if isinstance(ended.output, Canceled) else fields


def load(stored: Any) -> RunOutput:
    """Return the end of a run as `dump` has written it, or as an earlier version has stored it."""
    if isinstance(stored, RunOutput):
        return stored
    members = dict(stored)
    text = members.pop('canceled', None)
    ended = RunOutput(**{name: value for name, value in members.items() if name in RunOutput._fields})
    return ended if text is None else ended._replace(output=Canceled(text))


def dump_failure(failure: EngineFailure) -> Exception:
    """Return the error that DBOS stores of a failed run."""
    return Exception(_FAILURE, *failure.args)


def failure_of(error: Exception) -> Exception:
    """Return the failure of a run in place of the error that DBOS has stored."""
    return EngineFailure(*error.args[1:]) if error.args[:1] == (_FAILURE,) else error
