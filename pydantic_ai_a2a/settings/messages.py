"""Settings for messages of clients, and for answers to calls that wait for the client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from ..arguments import checked
from ..types import Caller, Message, WaitingTask

__all__ = ('HTTPS_ONLY', 'Approvals', 'Approvers', 'Messages', 'PlainText', 'Reply', 'Rule', 'WhileWorking')

HTTPS_ONLY = frozenset({'https'})
"""The default of `Messages.allowed_file_url_schemes`."""

Approvers: TypeAlias = str | Callable[[Caller, WaitingTask], bool | Awaitable[bool]]
"""The callers that may decide about waiting approvals: callers with a scope, or the callers for which a function of
the caller and the task returns True."""

PlainText: TypeAlias = Literal['none', 'deny', 'all'] | Collection[str]
"""The tool calls that a client may answer in plain words."""

Reply: TypeAlias = Literal['task', 'message']
"""The two kinds of answers to a message."""

Rule: TypeAlias = Reply | Callable[[Message], Reply | Awaitable[Reply]]
"""The kind of answer to messages without a task: one kind for all, or a function that returns the kind for a
message."""

WhileWorking: TypeAlias = Literal['queue', 'steer', 'reject']
"""The ways to treat a message to a queued or running task: see `Messages.while_working`."""


@checked
@dataclass(frozen=True, kw_only=True)
class Messages:
    """Content of messages, and their treatment."""

    input_type: Any = None
    """Type of the data in a message that begins a task, such as a Pydantic model. The data is validated before anything
    is stored. The model reads the validated data, and `a2a(ctx).input` returns the validated object. The card has the
    type's JSON Schema. Default None: any message is accepted."""
    allowed_file_url_schemes: frozenset[str] = HTTPS_ONLY
    """Schemes of file URLs in messages, like the option of Pydantic AI's UI adapters. Default `https` only. `http`
    exposes files to the network between; `s3` and `gs` let clients read all files that the model's provider can read on
    your behalf."""
    force_download: bool = True
    """True, the default: the server downloads files of `https` and `http` URLs, with Pydantic AI's download that
    refuses private addresses. False passes the URLs to providers that accept URLs; a provider inside your network then
    fetches any URL that a client sends."""
    while_working: WhileWorking = 'queue'
    """Treatment of a message to a queued or running task. `'queue'`, the default: the message is the prompt of the
    task's next run. `'steer'`: the message enters the run with the next request to the model. `'reject'`: the message
    is refused with error -32004."""
    reply: Rule = 'task'
    """Answer to a message that names no task: a task (`'task'`, the default), or a message (`'message'`), made by one
    run within the request that stores only the turn of its conversation. A function `(message)`, which may be async,
    chooses for each message."""
    client_tools: bool = False
    """True lets messages declare tools, which the agent may call in the task of the message and whose calls the client
    answers. The card declares the extension `client-tools-v1`. Default False: declared tools have no effect."""
    deps_headers: Collection[str] = ()
    """Names of HTTP headers that `deps_factory` can read. The headers are stored with the task; headers with
    credentials are not allowed. Default: none."""


@checked
@dataclass(frozen=True, kw_only=True)
class Approvals:
    """Answers of clients to waiting tool calls, and visibility of the calls' arguments."""

    plain_text_answers: PlainText = 'deny'
    """Tool calls that a client may answer in plain words instead of data. `'deny'`, the default: words answer a
    question or deny an approval. Names of tools: `yes` also approves calls of these tools. `'all'`: `yes` approves
    calls of every tool. `'none'`: words answer nothing."""
    change_arguments: bool | Collection[str] = True
    """Tools whose arguments an approval may change. True, the default: all tools except those in `hide_arguments`; no
    tool with `approvers`. Names of tools: these tools. False: no tool."""
    hide_arguments: Collection[str] = ()
    """Names of tools whose arguments are hidden from clients, in waiting calls and in `Results.progress`. Default:
    none."""

    approvers: Approvers | None = None
    """Callers that may approve or deny waiting calls. None, the default: the owner of the task. A scope: the callers
    with the scope. A function `(caller, task)`, which may be async: the callers for which the function returns True.
    Approvers have the tenant of the task. Needs `auth=`."""

    def __post_init__(self) -> None:
        if self.approvers == '':
            raise ValueError('Approvals.approvers is an empty scope: name a scope, or leave approvers= out.')

    @property
    def named_tools(self) -> dict[str, Collection[str]]:
        """The tools that the settings name, by setting."""
        return {
            'hide_arguments': self.hide_arguments,
            'plain_text_answers': () if isinstance(self.plain_text_answers, str) else self.plain_text_answers,
            'change_arguments': () if isinstance(self.change_arguments, bool) else self.change_arguments,
        }

    def words_approve(self, tool: str) -> bool:
        """Return True if plain words may approve a call of the tool."""
        answers = self.plain_text_answers
        return answers == 'all' or (not isinstance(answers, str) and tool in answers)

    def may_change(self, tool: str) -> bool:
        """Return True if an approval may change the arguments of a call of the tool."""
        if isinstance(self.change_arguments, bool):
            return self.change_arguments and self.approvers is None and tool not in self.hide_arguments
        return tool in self.change_arguments
