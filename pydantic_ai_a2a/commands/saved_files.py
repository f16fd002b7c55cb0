"""Saves the files of an answer in a directory. The agent has chosen their names and contents, and may be hostile.

A file is written under a name of its own, and gets its final name when it is complete. The final name is made new, so
that neither a file nor the target of a link is overwritten, whatever the file system takes for the same name. Files by
URL are only named: a URL of an agent may lead into the network of the user.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain, count
from mimetypes import guess_extension
from pathlib import Path
from unicodedata import category
from uuid import uuid4

from click import UsageError

from ..types.a2a_objects import Part
from .terminal import say

MOST_FILES = 100
"""Files of an answer that are saved. An answer has at most 64 MiB, and so have its files together."""
_MOST_CHARACTERS = 1000
_MOST_BYTES = 100
"""Bytes of a name without its suffix. Some file systems have no room for more than 143 with the suffix."""
_SLASH = re.compile(r'[/\\]')
_SUFFIX = re.compile(r'\.[A-Za-z0-9]{1,10}$')
_FORBIDDEN = frozenset('<>:"|?*')
"""Characters that Windows does not allow in names, or gives another meaning."""
_RESERVED = re.compile(r'(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9¹²³]) *(\..*)?', re.IGNORECASE)
"""Names of devices on Windows, which may have any suffix."""


def make_directory(path: Path) -> list[Path]:
    """Make the directory of `save_files` before an agent is asked. Return the new directories, the innermost first.

    Raises:
        UsageError: The directory cannot be made.
    """
    try:
        made = [directory for directory in (path, *path.parents) if not directory.exists()]
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f'--save {path} cannot be made: {error.strerror}.') from None
    return made


def remove_empty(directories: Iterable[Path]) -> None:
    """Remove the directories without content."""
    for directory in directories:
        with suppress(OSError):
            directory.rmdir()


def save_files(parts: Iterable[Part], directory: Path) -> bool:
    """Save the files among the parts of an answer, and say where. Return False if a file could not be saved."""
    files = [part for part in parts if 'raw' in part or 'url' in part]
    if not files:
        say('the answer has no files')
    are_saved = len(files) <= MOST_FILES
    for part in files[:MOST_FILES]:
        name = safe_name(part)
        if 'raw' not in part:
            say(f'{name} is not saved: the agent gives only its URL, {part.get("url")}')
            continue
        try:
            say(f'saved {_write(directory / name, b64decode(part["raw"], validate=True))}')
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else 'its base64 or its name is not valid'
            say(f'{name} cannot be saved: {reason}')
            are_saved = False
    if len(files) > MOST_FILES:
        say(f'{len(files) - MOST_FILES} more files are not saved: {MOST_FILES} of an answer are the most')
    return are_saved


def safe_name(part: Part) -> str:
    """Return the name of a file without its path. The name is neither hidden nor reserved, and no option of a command.

    Without a name, the media type tells the suffix.
    """
    name = _SLASH.split(part.get('filename', '').rstrip('/\\')[-_MOST_CHARACTERS:])[-1]
    name = ''.join(character if _is_plain(character) else '_' for character in name).lstrip(' .-~').rstrip(' .')
    suffix = '' if (match := _SUFFIX.search(name)) is None else match[0]
    stem = name.removesuffix(suffix).encode()[:_MOST_BYTES].decode(errors='ignore').rstrip(' .')
    if not stem:
        stem, suffix = 'file', guess_extension(part.get('media_type', '').partition(';')[0].strip()) or ''
    return f'{"_" if _RESERVED.fullmatch(stem) else ""}{stem}{suffix}'


def _is_plain(character: str) -> bool:
    """Return True for a letter, a mark, a digit, punctuation, a symbol or a space."""
    return (category(character)[0] in 'LMNPS' or character == ' ') and character not in _FORBIDDEN


def _write(wanted: Path, content: bytes) -> Path:
    """Write a new file. Return its path, which has a number if there is something of the wanted name."""
    partial = wanted.with_name(f'.{uuid4().hex}.part')
    try:
        with partial.open('xb') as file:
            file.write(content)
        numbered = (wanted.with_stem(f'{wanted.stem}-{n}') for n in count(2))
        path = next(path for path in chain([wanted], numbered) if _is_new(path))
        try:
            return partial.replace(path)
        except OSError:
            path.unlink(missing_ok=True)  # the empty file of `_is_new`
            raise
    finally:
        partial.unlink(missing_ok=True)


def _is_new(path: Path) -> bool:
    """Make an empty file, and return True; False if there is something, such as a link that leads nowhere."""
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
