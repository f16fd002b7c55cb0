"""Messages, artifacts and tasks of every shape, for tests of what holds for all of them."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st
from pydantic_core import to_json

from pydantic_ai_a2a.protocol.stored import STATE_NAMES, dump_artifact, dump_message
from pydantic_ai_a2a.types import StoredTask, TaskHeader

TEXT = st.text(st.characters(exclude_categories=['Cs']))
NAME = st.text(st.characters(exclude_categories=['Cs', 'Cc']), min_size=1, max_size=20)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda children: st.lists(children, max_size=4) | st.dictionaries(TEXT, children, max_size=4),
    max_leaves=10,
)
STRUCT = st.dictionaries(TEXT, JSON, max_size=4)
AROUND = {'filename': NAME, 'media_type': NAME, 'metadata': STRUCT}
PARTS: st.SearchStrategy[list[Any]] = st.lists(
    st.fixed_dictionaries({'text': TEXT}, optional=AROUND)
    | st.fixed_dictionaries({'raw': st.sampled_from(['', 'AA==', '+/8='])}, optional=AROUND)
    | st.fixed_dictionaries({'url': NAME}, optional=AROUND)
    | st.fixed_dictionaries({'data': JSON}, optional=AROUND),
    min_size=1,
    max_size=4,
)
NAMES = st.lists(NAME, min_size=1, max_size=3)


def messages(*roles: str) -> st.SearchStrategy[Any]:
    """Messages of the vocabulary."""
    return st.fixed_dictionaries(
        {'message_id': NAME, 'role': st.sampled_from(roles), 'parts': PARTS},
        optional={
            'context_id': NAME,
            'task_id': NAME,
            'metadata': STRUCT,
            'extensions': NAMES,
            'reference_task_ids': NAMES,
        },
    )


ARTIFACTS: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {'artifact_id': NAME, 'parts': PARTS},
    optional={'name': TEXT, 'description': TEXT, 'metadata': STRUCT, 'extensions': NAMES},
)


@st.composite
def stored_tasks(draw: st.DrawFn) -> StoredTask:
    """Tasks as storage gives them."""
    message = draw(st.none() | messages('agent'))
    metadata = draw(st.none() | STRUCT)
    header = TaskHeader(
        id=draw(NAME),
        context_id=draw(NAME),
        owner='/',
        state=draw(st.sampled_from(list(STATE_NAMES))),
        status_at=draw(st.integers(min_value=0, max_value=4_102_444_800_000)),
        status_message=None if message is None else dump_message(message),
        metadata=None if metadata is None else to_json(metadata),
        last_event=0,
    )
    history = draw(st.none() | st.lists(messages('user', 'agent'), max_size=3))
    artifacts = draw(st.none() | st.lists(ARTIFACTS, max_size=2))
    return StoredTask(
        header,
        None if history is None else [dump_message(each) for each in history],
        None if artifacts is None else [dump_artifact(each) for each in artifacts],
    )


def exact(value: object) -> str:
    """Tells 1, 1.0 and true apart, which are equal."""
    return json.dumps(value, sort_keys=True)
