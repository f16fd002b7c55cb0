"""Values of workflows that DBOS has stored are pickles, with the paths of modules: a later version still reads them."""

from __future__ import annotations

import pickle
from typing import Any, cast

import pytest

from pydantic_ai_a2a import Artifacts, AuthRequired, InputRequired, NoCredential, Rejected
from pydantic_ai_a2a.agent.runner import RunOutput
from pydantic_ai_a2a.conversion.stream import EngineFailure
from pydantic_ai_a2a.engines.engine import Canceled

STORED = [
    (
        (
            b'\x80\x04\x95I\x00\x00\x00\x00\x00\x00\x00\x8c\x1cpydantic_ai_a2a.agent.runner\x94\x8c\tRunOutput\x94'
            b'\x93\x94(\x8c\x06Sunny.\x94)N]\x94NN\x89N))N\x89Nt\x94\x81\x94.'
        ),
        RunOutput('Sunny.', (), None, [], cast('Any', None)),
    ),
    (
        (
            b'\x80\x04\x95]\x00\x00\x00\x00\x00\x00\x00\x8c"pydantic_ai_a2a.conversion.pending\x94\x8c\rInputRequired\x94'
            b'\x93\x94\x8c\x0bWhich city?\x94}\x94\x8c\x04type\x94\x8c\x06string\x94s\x86\x94R\x94.'
        ),
        InputRequired('Which city?', {'type': 'string'}),
    ),
    (
        (
            b'\x80\x04\x95l\x00\x00\x00\x00\x00\x00\x00\x8c"pydantic_ai_a2a.conversion.pending\x94\x8c\x0cAuthRequired\x94'
            b'\x93\x94\x8c\x0fPlease sign in.\x94]\x94\x8c\x05oauth\x94a\x8c\x11https://a.example\x94\x87\x94R\x94.'
        ),
        AuthRequired('Please sign in.', ['oauth'], 'https://a.example'),
    ),
    (
        (
            b'\x80\x04\x95:\x00\x00\x00\x00\x00\x00\x00\x8c"pydantic_ai_a2a.conversion.pending\x94\x8c\x0cNoCredential\x94'
            b'\x93\x94)R\x94.'
        ),
        NoCredential(),
    ),
    (
        (
            b'\x80\x04\x95@\x00\x00\x00\x00\x00\x00\x00\x8c"pydantic_ai_a2a.conversion.pending\x94\x8c\x08Rejected\x94'
            b'\x93\x94\x8c\x06Never.\x94\x85\x94R\x94.'
        ),
        Rejected('Never.'),
    ),
    (
        (
            b'\x80\x04\x95_\x00\x00\x00\x00\x00\x00\x00\x8c#pydantic_ai_a2a.conversion.outbound\x94\x8c\tArtifacts\x94'
            b'\x93\x94)\x81\x94N}\x94\x8c\n_artifacts\x94}\x94\x8c\x08raw data\x94]\x94K\x01ass\x86\x94b.'
        ),
        Artifacts({'raw data': [1]}),
    ),
    (
        (
            b'\x80\x04\x95V\x00\x00\x00\x00\x00\x00\x00\x8c\x1epydantic_ai_a2a.engines.engine\x94\x8c\x08Canceled\x94'
            b'\x93\x94)\x81\x94}\x94\x8c\x04text\x94\x8c\x16The run was cancelled.\x94sb.'
        ),
        Canceled('The run was cancelled.'),
    ),
    (
        (
            b'\x80\x04\x95t\x00\x00\x00\x00\x00\x00\x00\x8c!pydantic_ai_a2a.conversion.stream\x94\x8c\rEngineFailure\x94'
            b'\x93\x94(\x8c\x08internal\x94\x8c(The agent failed with an internal error.\x94\x89Nt\x94R\x94.'
        ),
        EngineFailure('internal', 'The agent failed with an internal error.', False, None),
    ),
]
"""Pickles of an earlier version, with the values."""


@pytest.mark.parametrize(('stored', 'value'), STORED, ids=[type(value).__name__ for _, value in STORED])
def test_read_pickles_of_an_earlier_version(stored: bytes, value: object) -> None:
    read = pickle.loads(stored)
    assert type(read) is type(value)
    assert _content(read) == _content(value)


def _content(value: object) -> object:
    return (value.args, vars(value)) if isinstance(value, Exception) else value
