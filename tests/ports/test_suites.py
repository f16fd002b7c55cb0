"""The shipped suites over our own backends, and the part of them that is for any `ConversationStore` over another."""

from __future__ import annotations

import pytest
from pydantic_ai.conversation_store import ConversationStore, InMemoryConversationStore

from pydantic_ai_a2a.testing import BackendSuite, CheckpointSuite, ConversationStoreSuite, DurableSuite, PushSuite


class TestBackend(BackendSuite, CheckpointSuite):
    """Over all of `BACKENDS`; the one in memory has the statements for checkpoints, too."""


class TestPush(PushSuite):
    """Over all of `BACKENDS`, too."""


class TestDurable(DurableSuite):
    """Over those of them that are durable."""


class TestPydanticAIsOwnStore(ConversationStoreSuite):
    """Which the suite holds ours against."""

    @pytest.fixture
    def store(self) -> ConversationStore:
        return InMemoryConversationStore()
