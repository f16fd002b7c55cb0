"""Valid and changed requests of every dialect, and messages, artifacts and tasks of every shape."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any, cast

from hypothesis import strategies as st
from pydantic_core import to_json

from pydantic_ai_a2a import A2AApp, Access, Push
from pydantic_ai_a2a.types import StoredTask, TaskHeader
from pydantic_ai_a2a.wire.protocol import fasta2a_dialect, v0_3
from pydantic_ai_a2a.wire.protocol.operations import OPERATIONS
from pydantic_ai_a2a.wire.protocol.stored import STATE_NAMES
from pydantic_ai_a2a.wire.protocol.stored_values import dump_artifact, dump_message

from ...constants import with_constants

MESSAGE_FIELDS: dict[str, Any] = {
    'messageId': 'm',
    'contextId': 'c',
    'taskId': 't',
    'metadata': {'k': 'v'},
    'extensions': ['e'],
    'referenceTaskIds': ['t0'],
}
PARTS_1_0: list[dict[str, Any]] = [
    {'text': 'Hi', 'metadata': {}},
    {'raw': 'AAEC', 'filename': 'a'},
    {'url': 'x'},
    {'data': [1]},
]
PARTS_0_3: list[dict[str, Any]] = [
    {'kind': 'text', 'text': 'Hi', 'metadata': {}},
    {'kind': 'file', 'file': {'bytes': 'AAEC', 'name': 'a', 'mimeType': 'text/plain'}},
    {'kind': 'file', 'file': {'uri': 'x'}},
    {'kind': 'data', 'data': {'value': [1]}, 'metadata': {'data_part_compat': True}},
]
CONFIGURATION = {'acceptedOutputModes': ['text/plain'], 'historyLength': 0}

SEND_1_0: dict[str, Any] = {
    'tenant': 'acme',
    'message': {**MESSAGE_FIELDS, 'role': 'ROLE_USER', 'parts': PARTS_1_0},
    'configuration': {**CONFIGURATION, 'taskPushNotificationConfig': {'url': 'x'}, 'returnImmediately': True},
    'metadata': {},
}
SEND_0_3: dict[str, Any] = {
    'message': {**MESSAGE_FIELDS, 'kind': 'message', 'role': 'user', 'parts': PARTS_0_3},
    'configuration': {**CONFIGURATION, 'pushNotificationConfig': {'url': 'x'}, 'blocking': True},
    'metadata': {},
}
SEND_FASTA2A: dict[str, Any] = {
    'message': {**MESSAGE_FIELDS, 'role': 'user', 'parts': PARTS_1_0},
    'configuration': {**CONFIGURATION, 'taskPushNotificationConfig': {'url': 'x'}, 'blocking': True},
    'metadata': {},
}
LIST = {
    'contextId': 'c',
    'pageSize': 1,
    'pageToken': 'p',
    'historyLength': 2,
    'statusTimestampAfter': '2026-01-01T00:00:00Z',
    'includeArtifacts': True,
}
TASK = {'id': 't', 'historyLength': 1, 'metadata': {'k': 1}}
PUSH = {
    'taskId': 't',
    'id': 'c',
    'url': 'x',
    'pageSize': 1,
    'pushNotificationConfigId': 'c',
    'pushNotificationConfig': {'url': 'x', 'token': 'secret', 'authentication': {'schemes': ['Basic']}},
}
"""The params of push notification configurations in all dialects: each passes over those of the others."""


def requests(methods: Any, send: Any, status: Any) -> list[dict[str, Any]]:
    """A request by each method, with every field that its params can have."""
    params = {
        **{name: PUSH for name, operation in OPERATIONS.items() if operation.capability == 'pushNotifications'},
        'SendMessage': send,
        'SendStreamingMessage': send,
        'ListTasks': {**LIST, 'status': status},
    }
    return [
        {'jsonrpc': '2.0', 'id': 1, 'method': method, 'params': params.get(operation.name, TASK)}
        for method, operation in methods.items()
    ]


REQUESTS = {
    '1.0': requests(OPERATIONS, SEND_1_0, 1),
    '0.3': requests(v0_3.METHODS, SEND_0_3, None),
    'fasta2a': requests(fasta2a_dialect.METHODS, SEND_FASTA2A, 'working'),
}
"""Valid requests by dialect."""

EDGE_VALUES: list[Any] = [
    '\ud800',
    '\x00',
    '',
    'ROLE_USER',
    'user',
    'text',
    '2026-01-01T00:00:00Z',
    0,
    1,
    -1,
    2**31,
    [],
    {},
]
ANY_JSON: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(categories=None, codec=None))
    | st.sampled_from(EDGE_VALUES),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(), children, max_size=3),
    max_leaves=6,
)
NEW_KEYS = st.text() | st.sampled_from(['message_id', 'history_length', 'data', 'text', 'file', 'bytes', 'uri', 'kind'])


def keys(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(cast('dict[str, Any]', value))
    return list(range(len(cast('list[Any]', value)))) if isinstance(value, list) else []


def containers(value: Any) -> list[Any]:
    """Everything in a JSON value that holds something, itself included."""
    items = [container for key in keys(value) for container in containers(value[key])]
    return [value, *items] if keys(value) else []


@st.composite
def mutated_requests(draw: st.DrawFn, dialect: str | None = None) -> Any:
    """A valid request of a dialect, or of any, with some values in it replaced, removed or added."""
    named = draw(st.sampled_from(list(REQUESTS))) if dialect is None else dialect
    request = deepcopy(draw(st.sampled_from(REQUESTS[named])))
    for _ in range(draw(st.integers(min_value=1, max_value=3))):
        target = draw(st.sampled_from(containers(request)))
        key = draw(st.sampled_from(keys(target)))
        if isinstance(target, dict) and draw(st.booleans()):
            target[draw(NEW_KEYS)] = draw(ANY_JSON)
        elif target is request or draw(st.booleans()):
            target[key] = draw(ANY_JSON)
        else:
            del target[key]
    return request


async def resolve_nothing(host: str, port: int) -> list[str]:
    return []


ALL_OPERATIONS_ON: dict[str, Any] = {
    'push': with_constants(Push, resolve=resolve_nothing, tries=1),
    'access': Access(tenants=True, allowed_hosts=['testserver']),
}
"""So that all operations are served, below the paths of tenants as well."""


async def stored_message_counts(app: A2AApp) -> set[tuple[str, int]]:
    """The tasks, and how many messages of users each has."""
    tasks = await app.list_tasks(limit=1_000)
    return {(task['id'], sum(each['role'] == 'user' for each in task.get('history', ()))) for task in tasks}


TEXT = st.text(st.characters(exclude_categories=['Cs']))
NAME = st.text(st.characters(exclude_categories=['Cs', 'Cc']), min_size=1, max_size=20)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda children: st.lists(children, max_size=4) | st.dictionaries(TEXT, children, max_size=4),
    max_leaves=10,
)
STRUCT = st.dictionaries(TEXT, JSON, max_size=4)
PART_FIELDS = {'filename': NAME, 'media_type': NAME, 'metadata': STRUCT}
PARTS: st.SearchStrategy[list[Any]] = st.lists(
    st.fixed_dictionaries({'text': TEXT}, optional=PART_FIELDS)
    | st.fixed_dictionaries({'raw': st.sampled_from(['', 'AA==', '+/8='])}, optional=PART_FIELDS)
    | st.fixed_dictionaries({'url': NAME}, optional=PART_FIELDS)
    | st.fixed_dictionaries({'data': JSON}, optional=PART_FIELDS),
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


NEW_TASK = TaskHeader(
    id='t',
    context_id='c',
    owner='/',
    state='submitted',
    status_at=0,
    status_message=None,
    metadata=None,
    last_event=0,
)
"""A new task."""


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


def canonical_json(value: object) -> str:
    """Tells 1, 1.0 and true apart, which are equal."""
    return json.dumps(value, sort_keys=True)
