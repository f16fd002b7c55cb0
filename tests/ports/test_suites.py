"""The shipped suites over our own backends, and the part of them that is for any `ConversationStore` over another."""

from __future__ import annotations

import pytest
from pydantic_ai.conversation_store import ConversationStore, InMemoryConversationStore

from ..long import size
from ..suites import (
    BackendSuite,
    CheckpointSuite,
    ConversationStoreSuite,
    CredentialSuite,
    DurableSuite,
    PayloadSuite,
    PushSuite,
)
from ..suites.base import MakeBackend


class TestBackend(BackendSuite, CheckpointSuite):
    """Over all of `BACKENDS`; the one in memory has the statements for checkpoints, too."""

    examples = size(8, BackendSuite.examples)
    orders = size(5, BackendSuite.orders)

    @pytest.mark.long
    def test_the_total_of_a_list_is_the_number_of_its_tasks(self, make_backend: MakeBackend) -> None:
        super().test_the_total_of_a_list_is_the_number_of_its_tasks(make_backend)

    @pytest.mark.long
    def test_whatever_happens_the_queue_keeps_its_promises(self, make_backend: MakeBackend) -> None:
        super().test_whatever_happens_the_queue_keeps_its_promises(make_backend)


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
