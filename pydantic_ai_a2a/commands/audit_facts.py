"""Facts about the user of a command, for the audit log."""

from __future__ import annotations

import os
from getpass import getuser

from ..server.audit import Fact


def audit_facts(owner: str) -> dict[str, Fact]:
    """Return the user of the command and the owner of the data, for the audit log."""
    try:
        user = getuser()
    except (KeyError, OSError):  # for example, users of a container have no names
        user = str(os.getuid())
    return {'via': 'command', 'user': user, 'owner': owner}
