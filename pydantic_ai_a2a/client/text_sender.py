"""The base of the client and of its conversations: sends a message, for its result, its events or its text."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from contextlib import aclosing

from typing_extensions import Unpack

from ..arguments import checked
from .live_text import LiveText
from .message_content import Content
from .results import RemoteResult
from .send_options import NO_TYPE, OutputT, OutputType, SendOptions, WaitOptions
from .updates import Update


class TextSender(ABC):
    """Sends messages to a remote agent."""

    @abstractmethod
    async def send(
        self, content: Content, *, output_type: OutputType[OutputT] | None = NO_TYPE, **options: Unpack[WaitOptions]
    ) -> RemoteResult[OutputT]:
        """Send a message, and return the answer."""

    @abstractmethod
    def stream(
        self, content: Content, *, output_type: OutputType[OutputT] | None = NO_TYPE, **options: Unpack[SendOptions]
    ) -> AsyncGenerator[Update[OutputT], None]:
        """Send a message, and yield the events of its task."""

    @checked
    async def send_text(self, content: Content, **options: Unpack[WaitOptions]) -> str:
        """Send a message, and return the text of the answer.

        Raises:
            RemoteError: The task has not completed. For other errors, see `send`.
        """
        return (await self.send(content, **options)).raise_for_state().text

    @checked
    async def stream_text(self, content: Content, **options: Unpack[SendOptions]) -> AsyncGenerator[str, None]:
        """Send a message, and yield the text of the answer in pieces.

        Text in place of earlier text begins a paragraph, and so does more text of an earlier artifact. Data and files
        come only if the answer has no text.

        Raises:
            RemoteError: The task has not completed. For other errors, see `send`.
        """
        live, pieces, update = LiveText(), list[str](), None
        async with aclosing(self.stream(content, **options)) as updates:
            async for update in updates:
                for piece, in_place in live.add(update):
                    if in_place:
                        pieces.clear()
                    pieces.append(piece)
                    yield f'\n\n{piece}' if in_place else piece
        assert update is not None, 'a stream has an event'
        text, shown = update.result.raise_for_state().text, ''.join(pieces)
        if text.startswith(shown) and text != shown:
            yield text.removeprefix(shown)
