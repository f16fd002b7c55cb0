"""Whatever is sent over HTTP+JSON is served or refused, and never breaks the server; what is refused leaves nothing.

`make fuzz` sends more than ten thousand requests, and others each time.
"""

from __future__ import annotations

import asyncio
import json
from typing import NamedTuple
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai import Agent

from pydantic_ai_a2a import to_a2a

from ...client import LIMIT, Answer, Exchange, lifespan
from ...dialects import PATHS, only, spoken
from ...long import LONG, drawn, size
from ...protocol.fuzzing import EVERYTHING, changed, stored
from .test_fuzz import KNOWN_ERRORS, mangled
from .test_hostile_input import LEAKS

pytestmark = only('HTTP+JSON', 'it is about its paths and queries')

PARTS = [
    *'/:?#%&=+.;',
    '..',
    '%2F',
    '%3A',
    '%00',
    '%ff',
    '%',
    'tasks',
    ':cancel',
    ':subscribe',
    'message:send',
    'v1',
    'é',
]
NAMES = [
    'pageSize',
    'page_size',
    'historyLength',
    'status',
    'includeArtifacts',
    'statusTimestampAfter',
    'contextId',
    'id',
]
VALUES = [
    '1',
    '0',
    '-1',
    '1e9',
    '9' * 400,
    'true',
    'yes',
    'TASK_STATE_COMPLETED',
    '2026-01-01T00:00:00Z',
    '%00',
    '',
    '%',
]

words = st.text(max_size=8).map(lambda text: quote(text, safe='', errors='replace'))
odd = st.lists(st.sampled_from(PARTS) | words, max_size=6).map(lambda parts: '/' + ''.join(parts))
known = st.tuples(st.sampled_from([path for _, path in PATHS.values()]), words | st.just('t')).map(
    lambda drawn: drawn[0].format(id=drawn[1], taskId=drawn[1])
)
queries = st.lists(st.tuples(st.sampled_from(NAMES) | words, st.sampled_from(VALUES) | words), max_size=4).map(
    lambda pairs: '?' + '&'.join('='.join(pair) for pair in pairs)
)
headers = st.fixed_dictionaries(
    {},
    optional={
        'Content-Type': st.sampled_from([*['application/json'] * 5, 'application/a2a+json', 'text/plain', '\xff']),
        'A2A-Version': st.sampled_from(['1.0', '0.3', '9.9', '\xff']),
        'A2A-Extensions': st.sampled_from(['https://example.com/e', '\xff']),
        'Last-Event-ID': st.sampled_from(['0', '3', '-1', 'x']),
        'Origin': st.just('https://evil.example'),
    },
)


class Sent(NamedTuple):
    verb: str
    path: str
    body: bytes
    headers: dict[str, str]


@st.composite
def messages(draw: st.DrawFn) -> Sent:
    """A message, of which something may have been changed."""
    params = draw(changed('1.0')).get('params')
    verb, path = PATHS[draw(st.sampled_from(['SendMessage', 'SendStreamingMessage']))]
    return Sent(verb, path, json.dumps(params).encode(), {'Content-Type': 'application/json', **draw(headers)})


anything = st.builds(
    Sent,
    st.sampled_from(['GET', 'POST', 'DELETE', 'PUT', 'HEAD', 'OPTIONS']),
    st.tuples(st.sampled_from(['', '', '/acme']), known | odd, queries | st.just('')).map(''.join),
    st.just(b'') | st.just(b'{}') | mangled() | st.binary(max_size=20),
    headers,
)


def check(answer: Answer) -> bool:
    """Whether it is a refusal, having seen that it is one that can be read."""
    assert answer.status < 500
    assert [leak for leak in LEAKS if leak in answer.body] == []
    if answer.status < 400:
        return False
    if answer.headers['content-type'] == 'application/a2a+json':
        assert answer.headers['x-correlation-id']
        assert answer.json['error']['code'] == answer.status
        assert spoken().error(answer.json)['code'] in KNOWN_ERRORS
    else:  # nothing of the binding: a path or verb it does not have, or the root, where the other one wants JSON
        assert answer.status in {404, 405, 415}
    return True


@pytest.mark.parametrize('round_', range(5 if LONG else 1))
@drawn(size(15, 40), 200)
@given(requests=st.lists(messages() | anything, min_size=10, max_size=10))
async def test_any_requests_are_served_or_refused_without_a_trace(round_: int, requests: list[Sent]) -> None:
    app = to_a2a(Agent('test'), **EVERYTHING)
    async with lifespan(app), asyncio.timeout(LIMIT):
        before = await stored(app)
        for sent in requests:
            answer = await Exchange(app, sent.verb, sent.path, sent.headers, sent.body).answer()
            after = await stored(app)
            if check(answer):
                assert after == before
            before = after
