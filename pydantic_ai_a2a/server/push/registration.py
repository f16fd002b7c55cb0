"""Registration of webhooks: the check of their URLs, and their ids."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256

from ...errors import InternalError, InvalidParamsError, PrivateAddressError, TaskNotFoundError
from ...settings.push import Push
from ...types.callers import Caller
from ...types.webhook_targets import PushTarget, Registered
from ...wire.protocol.page_tokens import config_after, config_token
from ...wire.protocol.versions import codec_of
from ..store.ports import PushConfig, PushConfigs, Takes
from .addresses import AddressPolicy, AddressRefused, PrivateHost
from .stored_targets import TargetCipher, TargetUnreadable

logger = logging.getLogger('pydantic_ai_a2a')

_OF_CALLER = re.compile('caller-[0-9a-f]{32}')
"""The ids that the server makes of callers. No caller may write such an id of another caller."""


def id_for(caller: Caller) -> str:
    """Return the id of the configuration that a caller registers without an id, in each of its tasks.

    Several callers may be one owner, and each has its own configuration.
    """
    key = replace(caller, owns_as='').owner
    return f'caller-{sha256(key.encode()).hexdigest()[:32]}'


class Registration:
    """Registers push notification configurations.

    Args:
        configs: The store of configurations.
        settings: The app's settings for webhooks.
        cipher: Encrypts the secrets of configurations.
    """

    def __init__(self, configs: PushConfigs, settings: Push, cipher: TargetCipher) -> None:
        self.configs = configs
        self.limit = settings.configs
        self._takes: Takes = 'chunks' if settings.chunks else 'artifacts'
        self._guard = AddressPolicy(settings.private_hosts)
        self._cipher = cipher

    def config(self, target: PushTarget, caller: Caller, dialect: str, at: str) -> PushConfig:
        """Return the stored form of a target.

        Args:
            target: The target.
            caller: The caller of the request.
            dialect: Name of the request's codec.
            at: The field of the params that holds the target; empty if the params are the target.

        Raises:
            InvalidParamsError: The URL can never be called, or the id is for another caller. Names are not resolved,
                because their addresses may change.
        """
        place = f'{at}.' if at else ''
        try:
            self._guard.check_url(target.url)
        except AddressRefused as refused:
            kind = PrivateAddressError if isinstance(refused, PrivateHost) else InvalidParamsError
            raise kind.of(f'{place}url', str(refused)) from None
        own = id_for(caller)
        if target.id != own and _OF_CALLER.fullmatch(target.id):
            raise InvalidParamsError.of(f'{place}id', 'names the webhook of another caller: choose another id')
        target = target if target.id else replace(target, id=own)
        takes = 'statuses' if codec_of(dialect).pushes_tasks else self._takes
        return PushConfig(id=target.id, version=dialect, takes=takes, body=self._cipher.dump(target))

    async def find(self, task_id: str, caller: Caller, config_id: str) -> PushConfig:
        """Return a configuration of a task; for an empty id, that of the caller without an id, else the oldest.

        Raises:
            TaskNotFoundError: The owner has no such task, or the task no such configuration.
        """
        if not config_id:
            with suppress(TaskNotFoundError):
                return await self.configs.get(task_id, caller.owner, id_for(caller))
        return await self.configs.get(task_id, caller.owner, config_id or None)

    def registered(self, task_id: str, config: PushConfig, correlation_id: str) -> Registered:
        """Return a configuration of a task for an answer.

        Raises:
            InternalError: The key of the encryption is no longer in `Push.keys`.
        """
        try:
            return Registered(task_id, self._cipher.load(config.body))
        except TargetUnreadable as error:
            text = 'Webhook %r of task %s cannot be read: %s (correlation id %s).'
            logger.error(text, config.id, task_id, error, correlation_id)
        raise InternalError(
            f'The push notification configuration {config.id} was encrypted with a key that the server no longer has:'
            ' delete it, or register it again.'
        )

    @staticmethod
    def page_of(
        configs: Sequence[PushConfig], task_id: str, page_size: int | None, token: str
    ) -> tuple[Sequence[PushConfig], str]:
        """Return one page of a task's configurations, and the token of the next page; empty after the last.

        Args:
            configs: All configurations, oldest first, which is the order without pages. Pages are ordered by id.
            task_id: The task.
            page_size: Size of the page; None for all configurations.
            token: Token of the page; empty for the first.

        Raises:
            InvalidParamsError: The token does not belong to this task.
        """
        if page_size is None and not token:
            return configs, ''
        after = config_after(token, task_id) if token else ''
        rest = sorted((config for config in configs if config.id > after), key=lambda config: config.id)
        page = rest[:page_size]
        return page, '' if len(page) == len(rest) else config_token(page[-1].id, task_id)
