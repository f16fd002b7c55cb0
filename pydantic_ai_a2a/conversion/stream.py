"""The failure of a run as an engine stores it. DBOS stores it with the path of this module."""

from __future__ import annotations


class EngineFailure(Exception):
    """A failure of a run as an engine stores it: the fields of a `Failure`, and the usage, if known."""
