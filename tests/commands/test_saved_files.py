"""`send --save`: the files of an answer in a directory, whatever names and contents an agent has chosen."""

from __future__ import annotations

import errno
import resource
from base64 import b64encode
from collections.abc import Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot

from pydantic_ai_a2a import serve
from pydantic_ai_a2a.commands.saved_files import MOST_FILES, save_files
from pydantic_ai_a2a.types.a2a_objects import Part

from ..bounds import LIMIT
from ..cases import each_case
from ..client.agents.canned_tasks import pending_call, task_waiting_with, task_with
from ..client.canned_agent import (
    WORKING,
    CannedAgent,
    agent_message,
    artifact_update,
    result_response,
    serve_canned,
    status_update,
    stream_response,
    task_in_state,
)
from .agents import PNG, shop_app
from .command import Outcome, run_command

Capture = pytest.CaptureFixture[str]


def part(name: str | None = None, content: bytes = b'content', media_type: str = 'image/png') -> dict[str, Any]:
    """A file of an answer."""
    named = {} if name is None else {'filename': name}
    return {'raw': b64encode(content).decode(), 'mediaType': media_type, **named}


def completed(*parts: dict[str, Any]) -> dict[str, Any]:
    """The event of a completed task with an artifact."""
    return {'task': task_with(parts)}


def send_and_save(capsys: Capture, directory: Path, *events: dict[str, Any]) -> Outcome:
    """Save the answer of an agent whose stream has the events."""
    with serve_canned(CannedAgent(stream_response(*events))) as server:
        return run_command(capsys, 'send', server.url, 'hello', '--save', str(directory))


def tree(directory: Path) -> dict[str, bytes]:
    """All files below a directory, by their paths."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob('*') if path.is_file()}


def messages(sent: Outcome) -> list[str]:
    """Standard error without the last line, which says how to go on."""
    return [line.removeprefix('pydantic-ai-a2a: ') for line in sent.err.splitlines()[:-1]]


def test_file_of_answer_is_saved(capsys: Capture, tmp_path: Path) -> None:
    directory = tmp_path / 'new' / 'files'
    with serve(shop_app()) as server:
        sent = run_command(capsys, 'send', server.url, 'picture', '--save', str(directory))
    assert (sent.code, sent.out, messages(sent)) == (
        0,
        '[pizza.png: image/png, 8 bytes]\n',
        [f'saved {directory}/pizza.png'],
    )
    assert tree(directory) == {'pizza.png': PNG}
    assert (directory / 'pizza.png').stat().st_mode & 0o111 == 0


@each_case(
    ('name', 'saved'),
    [
        ('../../etc/passwd', 'passwd'),
        ('/etc/passwd', 'passwd'),
        ('..\\..\\win.ini', 'win.ini'),
        ('C:\\Windows\\win.ini', 'win.ini'),
        ('C:win.ini', 'C_win.ini'),
        ('file.txt:stream', 'file.txt_stream'),
        ('directory/', 'directory'),
        ('.', 'file.png'),
        ('..', 'file.png'),
        ('../', 'file.png'),
        (' . ', 'file.png'),
        ('', 'file.png'),
        (None, 'file.png'),
        ('.bashrc', 'bashrc'),
        ('.-.bashrc', 'bashrc'),
        ('..a', 'a'),
        ('name. .', 'name'),
        ('-rf', 'rf'),
        ('~root', 'root'),
        ('con', '_con'),
        ('CON.tar.gz', '_CON.tar.gz'),
        ('nul .txt', '_nul.txt'),
        ('LPT¹.txt', '_LPT¹.txt'),
        ('console.txt', 'console.txt'),
        ('null\x00byte.png', 'null_byte.png'),
        ('line\nbreak\x1b[2J.png', 'line_break_[2J.png'),
        ('\u202egnp.exe', '_gnp.exe'),
        ('zero\u200bwidth', 'zero_width'),
        ('<a>|"b"?*', '_a___b___'),
        ('नमस्ते 📄.txt', 'नमस्ते 📄.txt'),
        ("Ann's plan (2).pdf", "Ann's plan (2).pdf"),
        (f'{"a" * 100_000}.png', f'{"a" * 100}.png'),
        (f'{"日" * 500}.pdf', f'{"日" * 33}.pdf'),
        (f'a.{"b" * 500}', f'a.{"b" * 98}'),
    ],
)
def test_saved_file_name_is_sanitized(name: str | None, saved: str, capsys: Capture, tmp_path: Path) -> None:
    directory = tmp_path / f'case {len(list(tmp_path.iterdir()))}' / 'files'
    sent = send_and_save(capsys, directory, completed(part(name)))
    assert (sent.code, messages(sent)) == (0, [f'saved {directory}/{saved}'])
    assert tree(directory.parent) == {f'files/{saved}': b'content'}


def test_answer_without_files_leaves_no_directory(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / 'empty').mkdir()
    for directory in (tmp_path / 'empty', tmp_path / 'new' / 'files'):
        assert messages(send_and_save(capsys, directory, completed())) == ['the answer has no files']
    assert ((tmp_path / 'empty').is_dir(), (tmp_path / 'new').exists()) == (True, False)


def test_existing_files_and_links_are_not_overwritten(capsys: Capture, tmp_path: Path) -> None:
    directory, secret = tmp_path / 'files', tmp_path / 'secret'
    directory.mkdir()
    secret.write_text('secret')
    (directory / 'a.png').write_text('mine')
    (directory / 'a-2.png').symlink_to(secret)
    (directory / 'a-3.png').symlink_to(tmp_path / 'missing')
    (directory / 'a-4.png').mkdir()
    sent = send_and_save(capsys, directory, completed(part('a.png', b'one'), part('x/a.png', b'two')))
    assert messages(sent) == [f'saved {directory}/a-5.png', f'saved {directory}/a-6.png']
    assert {name: content for name, content in tree(tmp_path).items() if name != 'joker.py'} == {
        'secret': b'secret',
        'files/a.png': b'mine',
        'files/a-2.png': b'secret',
        'files/a-5.png': b'one',
        'files/a-6.png': b'two',
    }
    assert not (tmp_path / 'missing').exists()


def test_simultaneous_saves_under_same_name_keep_all_files(tmp_path: Path) -> None:
    contents = [f'{n}'.encode() for n in range(60)]
    with ThreadPoolExecutor(6) as threads:
        saved = [
            threads.submit(save_files, [Part(raw=b64encode(content).decode(), filename='a.txt')], tmp_path)
            for content in contents
        ]
        assert all(one.result(LIMIT) for one in saved)
    files = {name: content for name, content in tree(tmp_path).items() if name != 'joker.py'}
    assert sorted(files.values()) == sorted(contents)


def test_last_version_of_streamed_artifact_is_saved(capsys: Capture, tmp_path: Path) -> None:
    events = [
        {'task': WORKING},
        artifact_update(part('draft.txt', b'draft')),
        artifact_update(part('book.txt', b'one')),
        artifact_update(part('book.txt', b'two'), append=True),
        status_update('COMPLETED'),
    ]
    assert send_and_save(capsys, tmp_path / 'files', *events).code == 0
    assert tree(tmp_path / 'files') == {'book.txt': b'one', 'book-2.txt': b'two'}


def test_cut_stream_saves_no_file(capsys: Capture, tmp_path: Path) -> None:
    events = [artifact_update(part('draft.txt')), {'task': {'id': 'broken'}}]
    assert send_and_save(capsys, tmp_path / 'files', *events).code == 1
    assert tree(tmp_path / 'files') == {}


@contextmanager
def longest_file(size: int) -> Generator[None]:
    """Let a write beyond a size fail, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_unwritable_file_leaves_no_partial_file(capsys: Capture, tmp_path: Path) -> None:
    answer = completed(part('one.txt'), part('large.bin', bytes(2_000_000)), part('two.txt'))
    with longest_file(1_000_000):
        sent = send_and_save(capsys, tmp_path / 'files', answer)
    assert (sent.code, messages(sent)[1]) == (1, 'large.bin cannot be saved: File too large')
    assert tree(tmp_path / 'files') == {'one.txt': b'content', 'two.txt': b'content'}


def test_file_with_failed_rename_leaves_nothing(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path, target: Path) -> Path:
        raise OSError(errno.EIO, 'Input/output error')

    monkeypatch.setattr(Path, 'replace', fail)
    sent = send_and_save(capsys, tmp_path / 'files', completed(part('one.txt')))
    assert (sent.code, messages(sent)) == (1, ['one.txt cannot be saved: Input/output error'])
    assert tree(tmp_path / 'files') == {}


def test_file_by_url_is_named_but_not_fetched(capsys: Capture, tmp_path: Path) -> None:
    url = {'url': 'http://169.254.169.254/secret', 'mediaType': 'image/png', 'filename': '../a.png'}
    sent = send_and_save(capsys, tmp_path / 'files', completed(url, part('b.png')))
    assert (sent.code, messages(sent)) == (
        0,
        [
            'a.png is not saved: the agent gives only its URL, http://169.254.169.254/secret',
            f'saved {tmp_path}/files/b.png',
        ],
    )
    assert tree(tmp_path / 'files') == {'b.png': b'content'}


def test_number_of_saved_files_is_limited(capsys: Capture, tmp_path: Path) -> None:
    sent = send_and_save(capsys, tmp_path / 'files', completed(*[part('a.txt')] * (MOST_FILES + 3)))
    assert (sent.code, messages(sent)[-1]) == (1, '3 more files are not saved: 100 of an answer are the most')
    assert len(tree(tmp_path / 'files')) == MOST_FILES


def test_damaged_base64_is_not_saved(capsys: Capture, tmp_path: Path) -> None:
    damaged = {**part('a.png'), 'raw': 'no base64!'}
    sent = send_and_save(capsys, tmp_path / 'files', completed(damaged, part('b.png')))
    assert (sent.code, messages(sent)[0]) == (1, 'a.png cannot be saved: its base64 or its name is not valid')
    assert tree(tmp_path / 'files') == {'b.png': b'content'}


def outcomes() -> Iterable[tuple[dict[str, Any], int]]:
    """Ends of an answer with a file, and their exit codes."""
    yield {'message': agent_message(part('a.png'))}, 0
    for state, code in (('COMPLETED', 0), ('FAILED', 1), ('INPUT_REQUIRED', 3)):
        yield {'task': task_in_state(state, artifacts=[{'artifactId': 'a', 'parts': [part('a.png')]}])}, code
    yield {'task': task_in_state('INPUT_REQUIRED', agent_message('This?', part('a.png')))}, 3


@each_case(('event', 'code'), outcomes())
def test_files_of_every_outcome_are_saved(event: dict[str, Any], code: int, capsys: Capture, tmp_path: Path) -> None:
    directory = tmp_path / f'case {len(list(tmp_path.iterdir()))}'
    assert send_and_save(capsys, directory, event).code == code
    assert tree(directory) == {'a.png': b'content'}


def test_files_of_approved_task_are_saved(capsys: Capture, tmp_path: Path) -> None:
    waiting = task_waiting_with(pending=[pending_call('approval')])
    canned = CannedAgent(result_response(waiting), stream_response(completed(part('a.png'))))
    with serve_canned(canned) as server:
        sent = run_command(capsys, 'send', server.url, '--task', 't', '--approve', '--save', str(tmp_path / 'files'))
    assert sent.code == 0
    assert tree(tmp_path / 'files') == {'a.png': b'content'}


def test_unusable_directory_is_refused_before_the_message(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / 'file').touch()
    canned = CannedAgent(stream_response(completed()))
    with serve_canned(canned) as server:
        refused = [
            run_command(capsys, 'send', server.url, 'hello', '--save', str(tmp_path / name)).why
            for name in ('file', 'file/below')
        ]
    assert [(code, text.replace(str(tmp_path), 'DIR')) for code, text in refused] == snapshot(
        [
            (2, "Invalid value for '--save': Directory 'DIR/file' is a file."),
            (2, '--save DIR/file/below cannot be made: Not a directory.'),
        ]
    )
    assert canned.requests == []


@each_case(('size', 'raw'), [(10, None), (9, None), (0, None), (8, None), (10, 'AAAAAAAAAAAAAA')])
def test_reported_file_size_excludes_base64_padding(size: int, raw: str | None, capsys: Capture) -> None:
    file = part('a.bin', bytes(size))
    answer = completed(file if raw is None else {**file, 'raw': raw})
    with serve_canned(CannedAgent(stream_response(answer))) as server:
        sent = run_command(capsys, 'send', server.url, 'hello')
    assert sent.out == f'[a.bin: image/png, {size} bytes]\n'
