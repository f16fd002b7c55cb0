"""Helps to test agents, in `client`, and backends: the other modules are suites to inherit. See "Write a backend"."""

import sys
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .checkpoints import CheckpointSuite
    from .conversations import ConversationStoreSuite
    from .credentials import CredentialSuite
    from .durable import DurableSuite
    from .events import EventLogSuite
    from .quotas import QuotaSuite
    from .reader import TaskReaderSuite
    from .suites import BackendSuite, DurableBackendSuite, HousekeepingSuite, PushSuite, TaskQueueSuite
    from .values import READER_LAG

__all__ = (
    'READER_LAG',
    'BackendSuite',
    'CheckpointSuite',
    'ConversationStoreSuite',
    'CredentialSuite',
    'DurableBackendSuite',
    'DurableSuite',
    'EventLogSuite',
    'HousekeepingSuite',
    'PushSuite',
    'QuotaSuite',
    'TaskQueueSuite',
    'TaskReaderSuite',
)

_MODULES = {
    'READER_LAG': 'values',
    'BackendSuite': 'suites',
    'CheckpointSuite': 'checkpoints',
    'ConversationStoreSuite': 'conversations',
    'CredentialSuite': 'credentials',
    'DurableBackendSuite': 'suites',
    'DurableSuite': 'durable',
    'EventLogSuite': 'events',
    'HousekeepingSuite': 'suites',
    'PushSuite': 'suites',
    'QuotaSuite': 'quotas',
    'TaskQueueSuite': 'suites',
    'TaskReaderSuite': 'reader',
}
"""The modules of the suites. The suites need Hypothesis, and `client` does not."""

if (_pytest := sys.modules.get('pytest')) is not None:
    # Failed assertions of the suites show the compared values. Only modules that are imported later are rewritten.
    _pytest.register_assert_rewrite(*(f'{__name__}.{module.name}' for module in iter_modules(__path__)))


def __getattr__(name: str) -> object:
    """Return a suite, and keep it."""
    if name not in _MODULES:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    try:
        for needed in ('pytest', 'hypothesis'):
            import_module(needed)
    except ImportError as error:
        raise ImportError('The suites need pytest and Hypothesis: pip install "pydantic-ai-a2a[testing]"') from error
    value = globals()[name] = getattr(import_module(f'.{_MODULES[name]}', __name__), name)
    return value
