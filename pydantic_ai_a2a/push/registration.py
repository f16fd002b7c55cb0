"""What becomes of a client's wish to be notified: checked, given an id, and the form it is stored in. Knows no HTTP."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from ..errors import InternalError, InvalidParamsError, PrivateAddressError
from ..ports import PushConfig, PushConfigs, Takes
from ..protocol import stored
from ..protocol.pages import config_after, config_token
from ..protocol.versions import codec_of
from ..settings import Push
from ..types import PushTarget
from .addresses import AddressPolicy, AddressRefused, PrivateHost
from .secrets import Cipher, Unreadable

__all__ = ('Registration',)

logger = logging.getLogger('pydantic_ai_a2a')


class Registration:
    """Takes in push notification configurations.

    Args:
        configs: Where they are stored.
        settings: The user's.
        seal: Writes their secrets.
    """

    def __init__(self, configs: PushConfigs, settings: Push, cipher: Cipher) -> None:
        self.configs = configs
        self.limit = settings.configs
        self._takes: Takes = 'chunks' if settings.chunks else 'artifacts'
        self._guard = AddressPolicy(settings.private_hosts)
        self._cipher = cipher

    def config(self, target: PushTarget, dialect: str, at: str) -> PushConfig:
        """The form in which a target is stored, that was at some field of the params; empty if it was the params.

        Raises:
            InvalidParamsError: Nothing would ever be sent there. Names are not resolved now: they tell nothing yet.
        """
        try:
            self._guard.check_url(target.url)
        except AddressRefused as refused:
            kind = PrivateAddressError if isinstance(refused, PrivateHost) else InvalidParamsError
            raise kind.of(f'{at}.url' if at else 'url', str(refused)) from None
        target = target if target.id else replace(target, id=stored.new_id())
        takes = 'statuses' if codec_of(dialect).pushes_tasks else self._takes
        return PushConfig(id=target.id, version=dialect, takes=takes, body=self._cipher.dump(target))

    def target(self, task_id: str, config: PushConfig, correlation_id: str) -> PushTarget:
        """What was registered.

        Raises:
            InternalError: The key that it was encrypted with is not there any longer.
        """
        try:
            return self._cipher.load(config.body)
        except Unreadable as error:
            said = 'Webhook %r of task %s cannot be read: %s (correlation id %s).'
            logger.error(said, config.id, task_id, error, correlation_id)
        raise InternalError(
            f'The push notification configuration {config.id} was encrypted with a key that the server has no longer:'
            ' delete it, or register it again.'
        )

    @staticmethod
    def page_of(
        configs: Sequence[PushConfig], task_id: str, page_size: int | None, token: str
    ) -> tuple[Sequence[PushConfig], str]:
        """One page of a task's configurations, and where the next begins; empty after the last.

        Args:
            configs: All of them, the oldest first, as they are answered if no page is asked for. Pages go by their ids.
            task_id: The task.
            page_size: How many at most; None: all.
            token: Where the page begins; empty for the first.

        Raises:
            InvalidParamsError: No page of this task's has given the token.
        """
        if page_size is None and not token:
            return configs, ''
        after = config_after(token, task_id) if token else ''
        rest = sorted((config for config in configs if config.id > after), key=lambda config: config.id)
        page = rest[:page_size]
        return page, '' if len(page) == len(rest) else config_token(page[-1].id, task_id)
