"""The base of queues around another queue."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from .task_queue import TaskQueue

MethodT = TypeVar('MethodT', bound=Callable[..., Any])


def inner_method(method: MethodT) -> MethodT:
    """Make a method that calls the same method of the attribute `inner`. The port declares the signature."""

    @wraps(method, updated=())  # without the mark of an abstract method
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.inner, method.__name__)(*args, **kwargs)

    return cast('MethodT', call)


class WrappedQueue(TaskQueue):
    """A queue around another one, which does all that a subclass does not override."""

    def __init__(self, inner: TaskQueue) -> None:
        self.inner = inner

    submit = inner_method(TaskQueue.submit)
    cancel = inner_method(TaskQueue.cancel)
    claim = inner_method(TaskQueue.claim)
    renew = inner_method(TaskQueue.renew)
    emit = inner_method(TaskQueue.emit)
    finish = inner_method(TaskQueue.finish)
    release = inner_method(TaskQueue.release)
    rehearsal = inner_method(TaskQueue.rehearsal)
