"""What DBOS stores of a workflow, so that a later version of the package reads it.

DBOS stores pickles, which hold the paths of the modules of classes. So the end of a run is stored as values by names,
and its failure as a class of this module, whose path stays. The classes that users give to DBOS, such as
`InputRequired`, are pickled by their public names.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from ..agent.run_output import RunOutput
from ..conversion.artifacts import Artifacts
from ..conversion.chosen_states import AuthRequired, InputRequired, NoCredential, Rejected
from ..conversion.failures import EngineFailure
from .engine import Canceled

_MOVED: Mapping[str, Sequence[type[Any]]] = {
    'pydantic_ai_a2a.conversion.outbound': (Artifacts,),
    'pydantic_ai_a2a.conversion.pending': (AuthRequired, InputRequired, NoCredential, Rejected),
    'pydantic_ai_a2a.conversion.stream': (EngineFailure,),
}
"""Paths of modules in pickles of earlier versions, with the classes that stood there."""

for _path, _classes in _MOVED.items():
    # DBOS reads such pickles with its own serializer, whatever serializer it is given.
    sys.modules[_path] = ModuleType(_path)
    vars(sys.modules[_path]).update((kind.__name__, kind) for kind in _classes)


class WorkflowFailed(Exception):
    """A failed run as DBOS stores it: the values of an `EngineFailure`."""


def dump(ended: RunOutput) -> dict[str, Any]:
    """Return the end of a run by names."""
    fields = ended._asdict()
    return {**fields, 'output': None, 'canceled': ended.output.text} if isinstance(ended.output, Canceled) else fields


def load(stored: Any) -> RunOutput:
    """Return the end of a run as `dump` has written it, or as an earlier version has stored it."""
    if isinstance(stored, RunOutput):
        return stored
    fields = dict(stored)
    text = fields.pop('canceled', None)
    ended = RunOutput(**fields)
    return ended if text is None else ended._replace(output=Canceled(text))


def failure_of(error: Exception) -> Exception:
    """Return the failure of a run in place of the error that DBOS has stored."""
    return EngineFailure(*error.args) if isinstance(error, WorkflowFailed) else error
