"""The suites over our own backends, and rules of the ports that no suite has."""

from __future__ import annotations

from inspect import signature

import pytest
from pydantic_ai.conversation_store import ConversationStore, InMemoryConversationStore

from pydantic_ai_a2a import store
from pydantic_ai_a2a.server.conversion.failures import EXPIRED_ATTEMPTS
from pydantic_ai_a2a.server.store.ports import DEAD_LETTER

from ..sizes import short_or_long
from ..suites import (
    BackendSuite,
    CheckpointSuite,
    ConversationStoreSuite,
    CredentialSuite,
    DurableSuite,
    HookCallSuite,
    OpenApprovalsSuite,
    PayloadSuite,
    PushSuite,
)
from ..suites.base import MakeBackend


class TestBackend(BackendSuite, CheckpointSuite):
    """Over all of `BACKENDS`; the one in memory has the statements for checkpoints, too."""

    examples = short_or_long(8, BackendSuite.examples)
    orders = short_or_long(5, BackendSuite.orders)
    most_rows = 550

    @pytest.mark.long
    def test_list_total_equals_number_of_matching_tasks(self, make_backend: MakeBackend) -> None:
        super().test_list_total_equals_number_of_matching_tasks(make_backend)

    @pytest.mark.long
    def test_random_schedule_of_task_queue_matches_model(self, make_backend: MakeBackend) -> None:
        super().test_random_schedule_of_task_queue_matches_model(make_backend)


class TestOpenApprovals(OpenApprovalsSuite):
    """Over all of `BACKENDS`, too."""


class TestHookCalls(HookCallSuite):
    """Over all of `BACKENDS`, too."""


class TestPush(PushSuite):
    """Over all of `BACKENDS`, too."""


class TestPayloads(PayloadSuite):
    """Data of runs at an engine."""


class TestCredentials(CredentialSuite):
    """Over all of `BACKENDS`, too."""


class TestDurable(DurableSuite):
    """Over those of them that are durable."""


class TestPydanticAIsOwnStore(ConversationStoreSuite):
    """Which the suite holds ours against."""

    @pytest.fixture
    def store(self) -> ConversationStore:
        return InMemoryConversationStore()


def test_dead_letter_kind_is_failure_of_too_many_attempts() -> None:
    assert EXPIRED_ATTEMPTS.kind == DEAD_LETTER


def test_all_ports_and_backends_are_importable_from_store() -> None:
    assert [name for name in store.__all__ if not hasattr(store, name)] == []


def test_import_of_unknown_backend_is_refused() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'RedisBackend'"):
        getattr(store, 'RedisBackend')  # noqa: B009 - type checkers know that there is none


@pytest.mark.parametrize('name', sorted(store.TaskQueue.__abstractmethods__))
def test_wrapped_queue_has_method_signatures_of_port(name: str) -> None:
    assert signature(getattr(store.WrappedQueue, name)) == signature(getattr(store.TaskQueue, name))
