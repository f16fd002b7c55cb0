"""Content of messages, and their treatment."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from ..arguments import checked
from ..types.a2a_objects import Message

HTTPS_ONLY = frozenset({'https'})
"""The default of `Messages.allowed_file_url_schemes`."""

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
