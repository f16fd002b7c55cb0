"""A SQLite file whose connections are opened again after something has happened to the file."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from pydantic_ai_a2a.errors import StoreUnavailable
from pydantic_ai_a2a.store.sqlite.connect import OpenedFile, SqliteFile


def test_no_connection_is_opened_beside_those_whose_wal_was_deleted(tmp_path: Path) -> None:
    opened = OpenedFile(SqliteFile(path=tmp_path / 'agent.db'))
    with closing(opened.connect(writes=True)):
        (tmp_path / 'agent.db-wal').unlink()
        with pytest.raises(StoreUnavailable) as refused:
            opened.connect()
    assert (
        refused.value.detail
        == f'{tmp_path}/agent.db-wal was deleted or replaced while it is open. Restart this process.'
    )
