"""The model that the state machine of the shipped suites compares a queue with."""

from __future__ import annotations

from ..suites.base import MakeBackend
from ..suites.machine import CONTEXTS, HOLDERS, Machine


def test_a_cancel_of_a_held_task_leaves_it_working_until_its_holder_stops(make_backend: MakeBackend) -> None:
    machine = Machine(make_backend)
    try:
        machine.begin(context=CONTEXTS[0])
        [task] = machine.known.values()
        machine.claim(holder=HOLDERS[0], limit=1)
        machine.cancel(task=task, force=False)
        assert (task.state, task.cancel) == ('working', True)
        machine.do(machine.check_tasks())
    finally:
        machine.teardown()
