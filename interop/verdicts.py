"""What the clients are to show, and what became of it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pydantic_ai_a2a.settings import TextStream

TEXT = 'It is sunny in Rome today, and it will be warm until the evening comes.'
BEFORE, AFTER = 'Let me look. ', 'It is 21 degrees.'
"""The texts of a run before and after a call of a tool: the second is the answer."""
ANSWERS = {'talk': TEXT, 'tool': AFTER}
"""The right answer of each agent that writes text."""
DATA = {'city': 'Rome', 'degrees': 21}

FORMS: tuple[TextStream, ...] = ('on-request', 'mark', 'replace')
"""The values of `Results.stream` that clients are run with."""
GRPC_SERVERS = {'gRPC on the card': True, 'gRPC off the card': False}
"""The servers that also serve gRPC, with `on_card` of `serve_grpc`."""


def of_text(shown: str, wanted: str) -> str:
    """What became of the wanted text on its way to a user."""
    plain, before, answer = (''.join(text.split()) for text in (shown, BEFORE, wanted))
    if not plain:
        return 'empty'
    texts = re.fullmatch(f'((?:{re.escape(before)})*)((?:{re.escape(answer)})+)', plain)
    if texts is None:
        return 'wrong'
    count = len(texts[2]) // len(answer)
    verdicts = {
        'both texts': bool(texts[1]),
        'doubled': count > 1,
        'broken up': shown.count(wanted) < count,
    }
    return ', '.join(verdict for verdict, is_so in verdicts.items() if is_so) or 'whole'


def of_live(pieces: Sequence[str], wanted: str) -> str:
    """What a user sees who reads each piece of the text as it comes; empty if the text comes in one piece."""
    if sum(map(bool, pieces)) < 2:
        return ''
    verdict = of_text(''.join(pieces), wanted)
    return {'whole': 'live', 'both texts': 'live'}.get(verdict, 'live twice' if 'doubled' in verdict else 'live wrong')


def of_data(shown: str) -> str:
    """Whether the data can be read."""
    return 'read' if all(str(value) in shown for value in DATA.values()) else 'not read'
