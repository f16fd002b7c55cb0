"""The names of the store for authors of backends."""

from __future__ import annotations

from inspect import signature

import pytest

from pydantic_ai_a2a import store


def test_all_ports_and_backends_are_importable_from_the_store() -> None:
    assert [name for name in store.__all__ if not hasattr(store, name)] == []


def test_a_backend_that_there_is_not_is_refused() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'RedisBackend'"):
        store.RedisBackend  # noqa: B018


@pytest.mark.parametrize('name', sorted(store.TaskQueue.__abstractmethods__))
def test_the_methods_of_a_wrapped_queue_have_the_signatures_of_the_port(name: str) -> None:
    assert signature(getattr(store.WrappedQueue, name)) == signature(getattr(store.TaskQueue, name))
