"""Conformance suites of the ports, for pytest: what a backend has to do, as tests to inherit. See "Write a backend"."""

from pkgutil import iter_modules

try:
    import hypothesis as _  # noqa: F401 - for the state machine of the queue
    import pytest
except ImportError as error:
    raise ImportError('The suites need pytest and Hypothesis: pip install "pydantic-ai-a2a[testing]"') from error

# Failed assertions of the suites then show the compared values, like assertions in the user's own tests.
pytest.register_assert_rewrite(*(f'{__name__}.{module.name}' for module in iter_modules(__path__)))

from .checkpoints import CheckpointSuite  # noqa: E402 - only what is imported later is rewritten
from .conversations import ConversationStoreSuite  # noqa: E402
from .durable import DurableSuite  # noqa: E402
from .events import EventLogSuite  # noqa: E402
from .quotas import QuotaSuite  # noqa: E402
from .reader import TaskReaderSuite  # noqa: E402
from .suites import BackendSuite, DurableBackendSuite, HousekeepingSuite, PushSuite, TaskQueueSuite  # noqa: E402
from .values import READER_LAG  # noqa: E402

__all__ = (
    'READER_LAG',
    'BackendSuite',
    'CheckpointSuite',
    'ConversationStoreSuite',
    'DurableBackendSuite',
    'DurableSuite',
    'EventLogSuite',
    'HousekeepingSuite',
    'PushSuite',
    'QuotaSuite',
    'TaskQueueSuite',
    'TaskReaderSuite',
)
