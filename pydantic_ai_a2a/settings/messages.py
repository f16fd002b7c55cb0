"""Settings of what clients send: messages, and answers to calls that wait."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from ..arguments import checked
from ..types import Message

__all__ = ('HTTPS_ONLY', 'Approvals', 'Messages', 'PlainText', 'Reply', 'Rule', 'WhileWorking')

HTTPS_ONLY = frozenset({'https'})
"""The schemes of the URLs that are taken, unless `allowed_file_url_schemes` says otherwise."""

PlainText: TypeAlias = Literal['none', 'deny', 'all'] | Collection[str]
"""The calls that a client may answer in plain words."""

Reply: TypeAlias = Literal['task', 'message']
"""The two kinds of answers to a message."""

Rule: TypeAlias = Reply | Callable[[Message], Reply | Awaitable[Reply]]
"""The kind of answer to all messages that begin something, or a function that returns it for each."""

WhileWorking: TypeAlias = Literal['queue', 'steer', 'reject']
"""The fates of a message to a task that is queued or runs."""


@checked
@dataclass(frozen=True, kw_only=True)
class Messages:
    """What messages of clients may hold, and what becomes of them."""

    input_type: Any = None
    """Type of the data that a message has to hold which begins a task, such as a Pydantic model: the data is validated
    before anything is stored, and its JSON Schema is on the card, as `inputSchema` of the skills. None takes any
    message."""
    allowed_file_url_schemes: frozenset[str] = HTTPS_ONLY
    """Schemes of the URLs that clients may send as files, as Pydantic AI's UI adapters have it. `http` shows files to
    whoever listens on the way; `s3` or `gs` let clients read what the model's provider may read for you."""
    force_download: bool = True
    """True: the server downloads the files whose `https` and `http` URLs clients send, by Pydantic AI's download that
    refuses private addresses. False leaves the URLs to a provider that takes them: one in your own network then fetches
    from there what clients name."""
    while_working: WhileWorking = 'queue'
    """What becomes of a message to a task that is queued or runs: it is the prompt of the task's next run (`'queue'`),
    enters the run with its next request to the model (`'steer'`), or is refused with -32004 (`'reject'`)."""
    reply: Rule = 'task'
    """What a message that goes to no task is answered with: `'task'`, or `'message'` (one run within the request, of
    which nothing but the turn of its conversation is stored), or a function of the message that says which and may be
    async."""
    deps_headers: Collection[str] = ()
    """Names of the HTTP headers that `deps_factory` is told, which are stored with the task; not those that have
    credentials."""


@checked
@dataclass(frozen=True, kw_only=True)
class Approvals:
    """How clients answer calls that wait for them, and what clients see of these calls."""

    plain_text_answers: PlainText = 'deny'
    """Calls that a client may answer in plain words instead of data. `'deny'` takes words as the answer to a question
    and as the denial of an approval. Names of tools: `yes` approves calls of these tools, too. `'all'`: `yes` approves
    calls of every tool. `'none'` takes no words."""
    change_arguments: bool | Collection[str] = True
    """Tools whose arguments an approval may change: all that `hide_arguments` does not name (`True`), exactly the named
    ones, or none (`False`)."""
    hide_arguments: Collection[str] = ()
    """Names of tools whose arguments clients are not shown: neither when a call of them waits for approval or for its
    result, nor where `Results.progress` shows calls."""

    @property
    def named_tools(self) -> dict[str, Collection[str]]:
        """The tools that the settings name, by setting."""
        return {
            'hide_arguments': self.hide_arguments,
            'plain_text_answers': () if isinstance(self.plain_text_answers, str) else self.plain_text_answers,
            'change_arguments': () if isinstance(self.change_arguments, bool) else self.change_arguments,
        }

    def words_approve(self, tool: str) -> bool:
        """True if plain words may approve a call of a tool."""
        answers = self.plain_text_answers
        return answers == 'all' or (not isinstance(answers, str) and tool in answers)

    def may_change(self, tool: str) -> bool:
        """True if an approval may change the arguments of a call of a tool."""
        if isinstance(self.change_arguments, bool):
            return self.change_arguments and tool not in self.hide_arguments
        return tool in self.change_arguments
