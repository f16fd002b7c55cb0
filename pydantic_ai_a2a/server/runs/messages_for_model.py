"""The messages that a run reads: its prompt, earlier messages of its task, and the tools that messages declare.

A run reads the message of its claim. It reads more in these cases:

- An earlier run of the task has ended before a model got its message. Then the message is part of the prompt now
  (`with_unprompted`).
- An `AgentWorker` of the user reads all messages of the task itself, up to the message of the run (`ReadTask`). The
  conversation is then read without the task's earlier runs.
- A message enters the run under way (`content`).
- The data that has begun the task was validated, and this is a later run (`validated`).
- The message declares no tools, but an earlier message of the task does (`tools`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import chain

from pydantic_ai.messages import ModelMessage, UserContent
from pydantic_ai.tools import ToolDefinition

from ...errors import A2AError, BadInput
from ...settings.limits import LONG
from ...types.a2a_objects import Message
from ...wire.extensions.client_tools import ClientTools, has_tools
from ...wire.protocol import stored_values
from ..agent.referenced_tasks import Refer
from ..agent.steering import Content
from ..conversion.accepted_content import Accepts
from ..conversion.typed_input import TypedInput, ValidatedInput
from ..conversion.user_prompts import user_prompt
from ..store.ports import Backend, Claim
from .recorder import Recorder

RunInput = tuple[str | Sequence[UserContent], Sequence[ModelMessage]]
"""The input of a run: its prompt, and the messages between the context and the prompt."""
Read = Callable[[Message], RunInput]
"""Reads one message."""
ReadTask = Callable[[Sequence[Message]], RunInput]
"""Reads all messages of a task. The model then needs no messages of the task's earlier runs."""


class RunMessages:
    """Reads the messages of runs, and converts the messages for the model.

    Args:
        backend: Stores the messages.
        read: Reads a client's message.
        read_task: Reads all messages of a task instead, at the start of each run.
        refer: Reads the tasks to which a message refers.
    """

    def __init__(self, backend: Backend, read: Read, read_task: ReadTask | None, refer: Refer) -> None:
        self._backend = backend
        self._read = read
        self._refer = refer
        self._read_task = read_task
        self.reads_tasks = read_task is not None
        """True if runs read all messages of their task."""

    async def validated(self, typed: TypedInput, claim: Claim, recorder: Recorder) -> ValidatedInput | None:
        """Return the data that has begun the task."""
        body = claim.message if claim.run == 1 else await recorder.store(partial(self._first_message, claim))
        message = stored_values.load_message(body)
        return typed.validated(message) if len(body) < LONG else await asyncio.to_thread(typed.validated, message)

    async def _first_message(self, claim: Claim) -> bytes:
        """Return the message that has begun the task; the message of the run if the task was erased meanwhile."""
        task = await self._backend.reader.load(claim.header.id, None, artifacts=False)
        history = () if task is None else task.history or ()
        return history[0] if history else claim.message

    async def read(
        self, claim: Claim, recorder: Recorder, body: bytes | None = None, validated: ValidatedInput | None = None
    ) -> RunInput:
        """Read a message, after the artifacts of referenced tasks.

        Args:
            claim: The run.
            recorder: Records the run.
            body: The message. Default: the message of the run, or all messages of its task if `read_task` reads these.
            validated: The data that has begun the task; None for any data.

        Raises:
            BadInput: `read_task` refuses one of the messages.
        """
        read_task = self._read_task if body is None else None
        body = claim.message if body is None else body
        message = stored_values.load_message(body)
        if validated is not None and claim.run == 1:
            message = validated.shown(message)
        if read_task is None:
            read = self._read
            prompt, before = read(message) if len(body) < LONG else await asyncio.to_thread(read, message)
        else:
            messages = await recorder.store(partial(self._messages, claim, stored_values.load_message(body)))
            if validated is not None:
                messages[0] = validated.shown(messages[0])
            try:
                prompt, before = read_task(messages)
            except A2AError as refused:
                raise BadInput(refused.message) from refused
        if 'reference_task_ids' in message:
            task_ids, owner = message['reference_task_ids'], claim.header.owner
            artifacts = await recorder.store(partial(self._refer, task_ids, self._backend.reader, owner))
            prompt = [*artifacts, *([prompt] if isinstance(prompt, str) else prompt)]
        return prompt, before

    async def with_unprompted(
        self,
        message_ids: Sequence[str],
        claim: Claim,
        recorder: Recorder,
        prompt: str | Sequence[UserContent] | None,
        before: Sequence[ModelMessage],
    ) -> RunInput:
        """Return the input of a run, after the messages that no earlier run has brought to the model.

        Args:
            message_ids: Ids of these messages.
            claim: The run.
            recorder: Records the run.
            prompt: The prompt of the run; None if its message is only an answer.
            before: The messages before the prompt.
        """
        task = await recorder.store(partial(self._backend.reader.load, claim.header.id, None, artifacts=False))
        history = () if task is None else task.history or ()
        bodies = await asyncio.to_thread(_of_ids, history, {*message_ids})
        inputs = [await self.read(claim, recorder, body) for body in bodies]
        if prompt is not None:
            inputs.append((prompt, before))
        if len(inputs) == 1:
            return inputs[0]
        prompts = ([prompt] if isinstance(prompt, str) else prompt for prompt, _ in inputs)
        return [*chain.from_iterable(prompts)], [*chain.from_iterable(before for _, before in inputs)]

    async def tools(self, client_tools: ClientTools, claim: Claim, recorder: Recorder) -> Sequence[ToolDefinition]:
        """Return the tools of the client: those of the newest message that declares tools, up to the run's message.

        Raises:
            BadInput: The message was accepted without a check, before the app had `Messages.client_tools`.
        """
        messages = [stored_values.load_message(claim.message)] if has_tools(claim.message) else []
        try:
            tools = next(map(client_tools.of, messages), None)
            if tools is None and claim.run > 1:
                messages = await recorder.store(partial(self._declaring, claim))
                tools = next((tools for tools in map(client_tools.of, reversed(messages)) if tools is not None), None)
        except A2AError as refused:
            raise BadInput(refused.message) from refused
        return tools or ()

    async def _declaring(self, claim: Claim) -> list[Message]:
        """Return the messages of the claim's task up to the message of the run; none if no message declares tools."""
        task = await self._backend.reader.load(claim.header.id, None, artifacts=False)
        history = () if task is None else task.history or ()
        return await self._up_to_run(claim, history) if any(map(has_tools, history)) else []

    async def history(self, claim: Claim) -> Sequence[ModelMessage]:
        """Return the conversation before a run, without the messages of the task's earlier runs."""
        history = await self._backend.history(claim)
        own = f'{claim.header.id}.'
        return [message for message in history if not (message.run_id or '').startswith(own)]

    async def _messages(self, claim: Claim, newest: Message) -> list[Message]:
        """Return the messages of the claim's task up to the newest message of the run."""
        task = await self._backend.reader.load(claim.header.id, None, artifacts=False)
        messages = await self._up_to_run(claim, () if task is None else task.history or ())
        # A user's storage may lack the message.
        place = max((n for n, message in enumerate(messages) if message == newest), default=len(messages))
        return [*messages[:place], newest]

    async def _up_to_run(self, claim: Claim, history: Sequence[bytes]) -> list[Message]:
        """Return the messages of a history without the messages that later runs will read.

        An answer to a pause is read before messages that were sent earlier.
        """
        later = [
            stored_values.load_message(body)
            for _, body, _ in await self._backend.reader.unread(claim.header.id, claim.inbox)
        ]
        messages: list[Message] = []
        # From the end, because an anonymous client may send a message twice.
        for message in map(stored_values.load_message, reversed(history)):
            if message in later:
                later.remove(message)
            else:
                messages.insert(0, message)
        return messages

    async def content(self, body: bytes, claim: Claim, recorder: Recorder) -> Sequence[Content]:
        """Return a message for a run that has begun."""
        prompt, before = await self.read(claim, recorder, body)
        return [*before, prompt] if isinstance(prompt, str) else [*before, *prompt]


def _of_ids(history: Sequence[bytes], message_ids: Collection[str]) -> list[bytes]:
    return [body for body in history if stored_values.load_message(body)['message_id'] in message_ids]


def plain_read(accepts: Accepts) -> Read:
    """Read a message as one prompt and nothing else."""
    return lambda message: (user_prompt(message, accepts), ())
