"""Limits of requests, messages, streams and queues."""

from __future__ import annotations

from dataclasses import dataclass

from ..arguments import checked
from ..time_spans import Span
from .positive_numbers import positive
from .quotas import Quotas

LONG = 262_144
"""Size of a message, in bytes, from which threads read and convert the message instead of the event loop."""


class _FixedLimits:
    """Limits that fit every server. Tests have others, in subclasses of `Limits`."""

    body_time = 30.0
    """Seconds within which a request body has to arrive. A slower request gets HTTP 408 after at most twice the time,
    and its connection is closed."""
    answer_time = 60.0
    """Seconds within which a client has to read a response of more than 64 KB; in a stream, each piece of more than 64
    KB. A slower response is cut off after at most twice the time, and its connection is closed."""
    values = 250_000
    """JSON values in a request body. A body with more gets HTTP 413: values take much more memory than their text."""
    parts = 1_000
    """Parts of a message."""
    metadata = 100_000
    """Largest metadata of a request, a message or a part, in bytes of JSON. Also limits the list of a message's
    extensions and the list of output modes."""
    references = 10
    """Tasks that a message may refer to."""
    referenced = 1_000_000
    """Bytes of JSON of the referenced tasks' artifacts that reach the model, together. Further artifacts are left
    out."""
    client_tools = 32
    """Tools that a message may declare, with `Messages.client_tools`."""
    download_time = 60.0
    """Seconds for the download of all files by URL of one request to the model. A task whose downloads take longer is
    `failed`."""
    page = 10_000_000
    """Bytes of messages and artifacts in one response of ListTasks. A larger page ends earlier, after at least one
    task, and the client asks for the next page."""
    reader_lag = 1_000_000
    """Bytes that the reader of an event stream may lag behind before the stream is closed. The reader can resume from
    its last event id."""
    keep_alive = 3.0
    """Seconds between comments on an idle event stream. The official client gives up after 5 seconds of silence."""
    cancel_grace = 5.0
    """Seconds that CancelTask waits for the run to stop. Then the task is `canceled`, and a later result is dropped."""


@checked
@dataclass(frozen=True, kw_only=True)
class Limits(_FixedLimits):
    """Limits of requests, messages, streams and queues, and quotas of callers."""

    body: int = 10_000_000
    """Largest request body, in bytes. A larger body gets HTTP 413 before the body is parsed. Default 10 MB."""
    unsent: int = 64_000_000
    """Bytes of unread responses and stream pieces of more than 64 KB each that the process holds for all clients. Over
    the limit, the slowest readers are cut off: those that have read nothing for a second, or would not finish within a
    minute. If the space is still too small, a new response is refused with HTTP 503, and a stream is closed; the
    client can resume the stream from its last event id. Default 64 MB."""
    part: int = 1_000_000
    """Longest text of a part, in characters, and largest data of a part, in bytes of JSON. Default 1,000,000. A message
    over this or a following message limit is refused with error -32602 before anything is stored."""
    files: int = 100
    """Files in a message, inline or by URL. Default 100."""
    depth: int = 32
    """Deepest nesting of objects and lists in data and metadata. Default 32; the official client reads no deeper
    objects."""
    queue: int = 10_000
    """Queued tasks. Over the limit, a new task is refused with HTTP 503 before anything is stored. Default 10,000."""
    messages: int = 32
    """Unread messages of one task; over the limit, a new message is refused with HTTP 503. Also the number of times
    that a waiting task repeats its question after an unclear answer; then unclear answers are refused with error
    -32602. Default 32."""
    memory: int = 1_000_000_000
    """Bytes of the store of `backend='memory'`, including conversations and answers, as pages in use. While the store
    is larger, new messages are refused with HTTP 503. `Retention` removes finished tasks. Files and databases have no
    such limit besides `Retention` and their disk. Default 1 GB."""
    max_wait: Span[float | None] = Span(None)
    """Seconds that a blocking send waits before the server returns the task as it is. Default None: until the task ends
    or asks the client for input."""
    quotas: Quotas | None = None
    """Quotas of each caller: requests, streams, tasks and model usage. Default None: no quotas."""

    def __post_init__(self) -> None:
        positive(self)
