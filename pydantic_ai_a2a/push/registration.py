"""What becomes of a client's wish to be notified: checked, given an id, and the form it is stored in. Knows no HTTP."""

from __future__ import annotations

from dataclasses import replace

from ..errors import InvalidParamsError
from ..ports import PushConfig, PushConfigs, Takes
from ..protocol import stored
from ..protocol.versions import codec_of
from ..settings import Push
from ..types import PushTarget
from .guard import Guard, Refused
from .secrets import Seal

__all__ = ('Registration',)


class Registration:
    """Takes in push notification configurations.

    Args:
        configs: Where they are stored.
        settings: The user's.
        seal: Writes their secrets.
    """

    def __init__(self, configs: PushConfigs, settings: Push, seal: Seal) -> None:
        self.configs = configs
        self.limit = settings.configs
        self._takes: Takes = 'chunks' if settings.chunks else 'artifacts'
        self._guard = Guard(settings.private_hosts)
        self._seal = seal

    def config(self, target: PushTarget, dialect: str) -> PushConfig:
        """The form in which a target is stored.

        Raises:
            InvalidParamsError: Nothing would ever be sent there. Names are not resolved now: they tell nothing yet.
        """
        try:
            self._guard.check_url(target.url)
        except Refused as refused:
            raise InvalidParamsError.of('url', str(refused)) from None
        target = target if target.id else replace(target, id=stored.new_id())
        takes = 'statuses' if codec_of(dialect).pushes_tasks else self._takes
        return PushConfig(id=target.id, version=dialect, takes=takes, body=self._seal.dump(target))

    def target(self, config: PushConfig) -> PushTarget:
        """What was registered."""
        return self._seal.load(config.body)
