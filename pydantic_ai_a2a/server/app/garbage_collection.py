"""Objects from before the start of a server or a command, which are left out of garbage collections."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def frozen_imports() -> Generator[None]:
    """Import the modules of a command without garbage collections, and leave the modules out of later ones.

    What imports make stays, so collections would visit all of it several times: a tenth of the time of a command. A
    program that has frozen objects itself decides about the modules.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if not gc.get_freeze_count():
            gc.freeze()
        if was_enabled:
            gc.enable()


@contextmanager
def frozen_objects() -> Generator[None]:
    """Leave the objects from before the start, such as modules, out of garbage collections.

    Else each full collection visits a hundred thousand such objects, which takes a tenth of the CPU time of a task. A
    collection before the start would visit them too, to free a few hundred kilobytes. What was frozen before stays so.
    """
    is_first = not gc.get_freeze_count()
    gc.freeze()
    try:
        yield
    finally:
        if is_first:
            gc.unfreeze()
