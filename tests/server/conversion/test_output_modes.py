from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import BinaryContent, BinaryImage, DeferredToolRequests
from pydantic_ai.messages import BinaryAudio
from pydantic_ai.output import TextOutput

from pydantic_ai_a2a.errors import ContentTypeNotSupportedError
from pydantic_ai_a2a.server.conversion.artifacts import Artifacts
from pydantic_ai_a2a.server.conversion.failures import classify
from pydantic_ai_a2a.server.conversion.output_mapper import OutputMapper
from pydantic_ai_a2a.server.conversion.output_modes import EVERYTHING, UnacceptableOutput, output_modes
from pydantic_ai_a2a.types import Artifact


class City(BaseModel):
    name: str = 'Rome'


PNG = BinaryImage(b'\x89PNG\r\n\x1a\n', media_type='image/png', identifier='map.png')
CSV = BinaryContent(b'a,b\n', media_type='text/csv; charset=utf-8', identifier='table.csv')


def artifacts(output_type: Any, output: Any, *names: str, files: tuple[BinaryContent, ...] = ()) -> list[Artifact]:
    mapper = OutputMapper(output_type)
    return mapper.artifacts(output, artifact_id='r', files=files, accepted=mapper.accepted(names))


def kinds(made: list[Artifact]) -> list[tuple[str, list[str]]]:
    """The artifacts' ids, and of their parts what is in them and its type."""
    return [
        (each['artifact_id'], [f'{next(iter(part))} {part.get("media_type")}' for part in each['parts']])
        for each in made
    ]


@pytest.mark.parametrize(
    ('name', 'taken'),
    [
        ('text/plain', ['text/plain']),
        ('TEXT/Plain; charset=utf-8', ['text/plain']),
        (' text/plain ;q=0.5', ['text/plain']),
        ('text/*', ['text/plain', 'text/csv']),
        ('text', ['text/plain', 'text/csv']),
        ('Text', ['text/plain', 'text/csv']),
        ('application/json', ['application/json']),
        ('application/*', ['application/json', 'application/pdf']),
        ('image/jpg', ['image/jpeg']),
        ('image/*;q=1', ['image/jpeg']),
        ('*/*', ['text/plain', 'text/csv', 'application/json', 'application/pdf', 'image/jpeg']),
        ('*', ['text/plain', 'text/csv', 'application/json', 'application/pdf', 'image/jpeg']),
        ('video/mp4', []),
        ('', []),
        ('/', []),
        ('nonsense', []),
    ],
)
def test_accepted_output_mode_is_media_type_or_range(name: str, taken: list[str]) -> None:
    all_types = ['text/plain', 'text/csv', 'application/json', 'application/pdf', 'image/jpeg']
    modes = output_modes([name])
    assert [each for each in all_types if modes.takes(each)] == taken
    assert (modes.text, modes.json) == ('text/plain' in taken, 'application/json' in taken)


def test_client_without_output_modes_accepts_everything() -> None:
    assert OutputMapper(str).accepted([]) is EVERYTHING
    assert EVERYTHING.takes('application/x-anything')


def test_accepted_output_is_not_converted() -> None:
    taken = ('text/plain', 'application/json')
    assert artifacts(str, 'Hello', *taken) == artifacts(str, 'Hello')
    assert artifacts(City, City(), *taken) == artifacts(City, City())
    assert artifacts(BinaryImage, PNG, 'image/*') == artifacts(BinaryImage, PNG)


def test_unaccepted_files_and_artifacts_are_dropped() -> None:
    assert kinds(artifacts(list[BinaryContent], [CSV, PNG], 'image/png')) == [('r', ['raw image/png'])]
    several = Artifacts(map=PNG, table=CSV, summary='Fine.', figures=[1])
    assert kinds(artifacts(Artifacts, several, 'text/csv', 'application/json')) == [
        ('r', ['raw text/csv; charset=utf-8']),
        ('r-2', ['data application/json']),
        ('r-3', ['data application/json']),
    ]


@pytest.mark.parametrize(
    ('output_type', 'output'), [(str, 'Hello'), (City, City()), (BinaryImage, PNG), (Artifacts, Artifacts(map=PNG))]
)
def test_output_without_accepted_type_fails_as_bad_output(output_type: Any, output: Any) -> None:
    with pytest.raises(UnacceptableOutput) as failed:
        artifacts(output_type, output, 'video/mp4', files=(BinaryContent(b'', media_type='video/mp4'),))
    assert classify(failed.value).kind == 'bad-output'


@pytest.mark.parametrize(
    ('output_type', 'names', 'fits'),
    [
        (str, ['application/json'], True),
        (str, ['image/png', 'TEXT/*'], True),
        (str, ['image/png'], False),
        (City, ['text/plain'], True),
        (City, ['video/*'], False),
        (BinaryImage, ['image/webp'], True),
        (BinaryImage, ['text/plain', 'application/json'], False),
        ([BinaryImage, str], ['text/plain'], True),
        ([BinaryImage, City], ['image/png'], True),
        (BinaryAudio, ['audio/*'], True),
        (BinaryContent, ['application/x-anything'], True),
        (Artifacts, ['application/x-anything'], True),
        (DeferredToolRequests, ['text/plain'], True),
        (DeferredToolRequests, ['image/png'], False),
        (TextOutput(lambda text: text), ['image/png'], False),
    ],
)
def test_unmatchable_output_modes_are_refused_before_run(output_type: Any, names: list[str], fits: bool) -> None:
    mapper = OutputMapper(output_type)
    mapper.check([])
    if fits:
        mapper.check(names)
    else:
        with pytest.raises(ContentTypeNotSupportedError):
            mapper.check(names)


@pytest.mark.parametrize(
    ('called', 'output_type', 'output'),
    [('text/markdown', str, '*Hello*'), ('application/vnd.city+json', City, City())],
)
def test_output_modes_set_on_card_are_accepted(called: str, output_type: Any, output: Any) -> None:
    mapper = OutputMapper(output_type, [called])
    mapper.check([called])
    assert mapper.modes == [called]
    assert mapper.artifacts(output, artifact_id='r', accepted=mapper.accepted([called])) == mapper.artifacts(
        output, artifact_id='r'
    )
