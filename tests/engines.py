"""What engines for durable execution cannot do on every machine."""

from __future__ import annotations

import sqlite3
import sys

import pytest


def need_dbos() -> None:
    """Skip a test that has DBOS keep its workflows in a file, where its own statements fail."""
    if sys.version_info >= (3, 12) and sqlite3.sqlite_version_info < (3, 42):
        pytest.skip('from Python 3.12 on, DBOS needs SQLite 3.42 for a file')
