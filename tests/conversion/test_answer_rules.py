"""What clients may answer: the table of words, and the options."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import Agent

from pydantic_ai_a2a import Approvals, to_a2a
from pydantic_ai_a2a.conversion.asking import verdict


@pytest.mark.parametrize(
    ('text', 'decided'),
    [
        ('yes', ('approve', None)),
        ('Ok.', ('approve', None)),
        ('\tOKAY!!\n', ('approve', None)),
        ('no', ('deny', None)),
        ('N', ('deny', None)),
        ('no:', ('deny', None)),
        ('Denied : too risky!', ('deny', 'too risky!')),
        ('yes:', None),
        ('yes, please', None),
        ('yes but no', None),
        ('not yes', None),
        ('yes\u200b', None),
        ('"yes"', None),
        ('', None),
    ],
)
def test_words_are_matched_as_a_whole(text: str, decided: Any) -> None:
    assert verdict(text) == decided


def look() -> None:
    """Look."""


def delete() -> None:
    """Delete."""


@pytest.mark.parametrize(
    ('options', 'error', 'match'),
    [
        ({'plain_text_answers': 'questions'}, ValueError, "takes 'none', 'deny', 'all' or a list or a set of strings"),
        ({'plain_text_answers': True}, TypeError, 'plain_text_answers takes'),
        ({'plain_text_answers': ['delete', 'lok']}, ValueError, "plain_text_answers has 'lok'.* Did you mean 'look'"),
        ({'change_arguments': 'delete'}, TypeError, 'change_arguments takes True or False or a list or a set'),
        ({'change_arguments': ['lok']}, ValueError, "change_arguments has 'lok'.* Did you mean 'look'"),
    ],
)
def test_an_option_that_is_none_is_refused(options: dict[str, Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        to_a2a(Agent('test', tools=[look, delete]), approvals=Approvals(**options))
