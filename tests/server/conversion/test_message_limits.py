"""What one message may hold: each limit is the last that is taken, and what is more names its field."""

from __future__ import annotations

from typing import Any

import pytest

from pydantic_ai_a2a import Limits
from pydantic_ai_a2a.errors import InvalidParamsError
from pydantic_ai_a2a.server.conversion.message_limits import check_limits, check_metadata
from pydantic_ai_a2a.types import Message, Part
from pydantic_ai_a2a.wire.protocol.stored_values import dump_parts

from ...constants import with_constants

LIMITS = with_constants(Limits, parts=3, part=8, files=2, metadata=10, depth=3)


def check(*parts: Part, limits: Limits = LIMITS, **fields: Any) -> None:
    message = Message(role='user', message_id='m', parts=list(parts), **fields)
    check_limits(message, len(dump_parts(message['parts'])), limits)


AT_THE_LIMIT = [
    pytest.param([Part(text='')] * 3, id='parts'),
    pytest.param([Part(text='12345678')], id='text'),
    pytest.param([Part(text='éééééééé')], id='text is counted in characters'),
    pytest.param([Part(data='123456')], id='data'),
    pytest.param([Part(data=[[], []])], id='more lists than levels'),
    pytest.param([Part(data='[[[[')], id='brackets in a text'),
    pytest.param([Part(data=[[[]]])], id='depth'),
    pytest.param([Part(data={'': {}})], id='depth of objects'),
    pytest.param([Part(url='https://example.com/a.png'), Part(raw='')], id='files'),
    pytest.param([Part(text='', metadata={'a': '12'})], id='metadata'),
]


@pytest.mark.parametrize('parts', AT_THE_LIMIT)
def test_message_at_a_limit_is_accepted(parts: list[Part]) -> None:
    check(*parts)
    check(*parts, limits=Limits())


OVER = [
    pytest.param([Part(text='')] * 4, 'message.parts: must not have more than 3 parts', id='parts'),
    pytest.param([Part(text='123456789')], 'message.parts[0].text: must not have more than 8 characters', id='text'),
    pytest.param(
        [Part(text=''), Part(text='123456789')],
        'message.parts[1].text: must not have more than 8 characters',
        id='text of another part',
    ),
    pytest.param([Part(data='1234567')], 'message.parts[0].data: must not have more than 8 bytes of JSON', id='data'),
    pytest.param([Part(data=[[[[]]]])], 'message.parts[0].data: must not be nested more than 3 deep', id='depth'),
    pytest.param(
        [Part(data=[1, {'a': [2, {}]}])], 'message.parts[0].data: must not be nested more than 3 deep', id='mixed'
    ),
    pytest.param(
        [Part(url='https://example.com/a.png'), Part(raw=''), Part(raw='')],
        'message.parts: must not have more than 2 files',
        id='files',
    ),
    pytest.param(
        [Part(text='', metadata={'a': '1234567'})],
        'message.parts[0].metadata: must not have more than 10 bytes of JSON',
        id='metadata',
    ),
    pytest.param(
        [Part(text='', metadata={'a': [[[]]]})],
        'message.parts[0].metadata: must not be nested more than 3 deep',
        id='depth of metadata',
    ),
]


@pytest.mark.parametrize(('parts', 'problem'), OVER)
def test_message_over_limit_is_refused_with_its_field(parts: list[Part], problem: str) -> None:
    with pytest.raises(InvalidParamsError) as refused:
        check(*parts)
    assert refused.value.message == f'Invalid parameters: {problem}'
    assert refused.value.violations[0].field == problem.partition(': ')[0]


def test_metadata_of_short_text_are_limited() -> None:
    limits = with_constants(Limits, part=1_000, metadata=10)
    with pytest.raises(InvalidParamsError, match=r'message\.parts\[0\]\.metadata: must not have more than 10 bytes'):
        check(Part(text='', metadata={'a': '1234567'}), limits=limits)


def test_message_and_request_metadata_are_limited() -> None:
    check(Part(text=''), metadata={'a': '12'})
    check_metadata({'a': '12'}, 'metadata', LIMITS)
    with pytest.raises(InvalidParamsError, match=r'message\.metadata: must not have more than 10 bytes'):
        check(Part(text=''), metadata={'a': '1234567'})
    with pytest.raises(InvalidParamsError, match=r'parameters: metadata: must not be nested'):
        check_metadata({'a': [[{}]]}, 'metadata', LIMITS)
