"""The repetition of requests while an agent does not answer, with pauses that grow, and an end."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable

from ..backoff import backoff_after, spread
from ..errors import A2AError, OverloadedError, QuotaExceededError, RemoteUnavailable

logger = logging.getLogger('pydantic_ai_a2a')

_FIRST, _LONGEST = 0.05, 1.0
"""The first and the longest pause, in seconds."""


class Patience:
    """Pauses between attempts. An answer of the agent begins the time anew.

    Args:
        limit: Seconds without an answer after which no attempt follows.
        chance: Returns a random number from 0 to 1.
    """

    def __init__(self, limit: float, *, chance: Callable[[], float] = random.random) -> None:
        self._limit = limit
        self._chance = chance
        self._clock = asyncio.get_running_loop().time
        self.answered()

    def answered(self, *, news: bool = True) -> None:
        """Begin the time anew: the agent has answered. Without news, the pauses go on growing."""
        if news:
            self._failures = 0
            self._logged = False
        self._end = self._clock() + self._limit

    async def wait(self, error: RemoteUnavailable | A2AError) -> None:
        """Pause before the next attempt, for a random time, or as long as the agent asks for.

        Raises:
            RemoteUnavailable: The time is over; the error of the last attempt.
            A2AError: Likewise, or the agent has refused the request for good.
        """
        self._failures += 1
        growing = backoff_after(self._failures, _FIRST, _LONGEST)
        pause = spread(growing, chance=self._chance())
        if isinstance(error, A2AError) and not isinstance(error, (OverloadedError, QuotaExceededError)):
            raise error
        pause = error.retry_after or pause
        if self._clock() + pause > self._end:
            raise error
        if not self._logged and max(pause, growing) >= _LONGEST:
            self._logged = True
            logger.warning('The request is repeated for up to %.0f seconds: %s', self._end - self._clock(), error)
        await asyncio.sleep(pause)
