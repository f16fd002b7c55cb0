"""A remote agent as tools of an agent: the toolset, the calls, and their results."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from contextlib import aclosing, suppress
from copy import copy
from datetime import timedelta
from functools import partial
from typing import Any, Generic, Literal, NoReturn, Self, TypeAlias, cast

import httpx2
from pydantic_ai.exceptions import ApprovalRequired, ModelRetry, ToolFailed, UserError
from pydantic_ai.messages import ModelRequest, ToolReturn, ToolReturnPart
from pydantic_ai.tools import AgentDepsT, RunContext
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
from pydantic_ai.usage import RunUsage
from pydantic_core import SchemaValidator, core_schema
from typing_extensions import TypedDict, Unpack

from ...arguments import checked
from ...errors import A2AError, InvalidParamsError, RemoteError
from ...json_values import as_object, dump_json
from ...task_states import INTERRUPTED
from ...types.a2a_objects import AgentCard, Message, Task
from ...wire.extensions.own_extensions import RUN_METADATA_URI
from ...wire.extensions.pending_calls_extension import with_question
from ...wire.extensions.remote_calls import ANSWER, WAITING, CallsRemoteAgent
from ..answer_content import content_of, status_message
from ..client import A2AClient
from ..http_connections import Auth
from ..interfaces import extensions_of
from ..message_content import digest_id
from ..output_validation import output_problem
from ..question_answers import RemoteAnswer, approval_of
from ..questions import PendingRemoteCall, RemoteQuestion, question_of_task
from ..remote_urls import shown_url
from ..send_options import SendOptions
from ..targets import Target
from ..trusted_keys import TrustedKeys
from ..updates import Update
from .remote_tasks import RemoteTasks, after_sign_in
from .remote_tools import RemoteTool, remote_tools
from .remote_usage import difference, totals
from .task_events import A2ATaskEvent, RemoteTaskEvent

logger = logging.getLogger('pydantic_ai_a2a')

HeadersOf: TypeAlias = Callable[[RunContext[AgentDepsT]], Mapping[str, str] | Awaitable[Mapping[str, str]]]
"""Returns the headers of a run's requests."""
AuthOf: TypeAlias = Callable[[RunContext[AgentDepsT]], Auth | Awaitable[Auth | None] | None]
"""Returns the authentication of a run's requests."""
ErrorBehavior: TypeAlias = Literal['failed', 'retry', 'error']
PLACE = 'a2a'
"""Key of the tool, task and conversation in the metadata of a tool return."""
MOST_WAITING = 10_000
"""Most waiting remote tasks that this process remembers."""
_LONGEST_WAITING = 2_000
"""Most bytes of JSON of a waiting remote task that this process remembers."""
_SHOWN = 200
_MESSAGE = SchemaValidator(
    core_schema.typed_dict_schema({'message': core_schema.typed_dict_field(core_schema.str_schema())})
)
_ANY = SchemaValidator(core_schema.dict_schema(core_schema.str_schema()))


class ToolsetOptions(TypedDict, Generic[AgentDepsT], total=False):
    """Options of `A2AToolset` and `A2A`."""

    headers: Mapping[str, str] | HeadersOf[AgentDepsT] | None
    """Headers of every request, or a function of the run's context that returns the headers of the run. Default:
    none."""
    auth: Auth | AuthOf[AgentDepsT] | None
    """A bearer token, user name and password, or an `httpx2.Auth`; or a function of the run's context. Default:
    none."""
    http_client: httpx2.AsyncClient | None
    """An HTTP client of your own. The client stays open. Default: a client of the package."""
    timeout: float | timedelta
    """Seconds for a connection, and for silence of the agent. Default 30."""
    trusted_origins: Collection[str]
    """Origins besides the card's that may get requests and credentials. Default: none."""
    card_keys: TrustedKeys | None
    """Keys of which one must have signed the card. Default: signatures are not verified."""
    id: str | None
    """Id of the toolset, for durable execution and for error messages. Two toolsets for one agent have separate
    conversations by their ids. Default: none."""
    max_retries: int | None
    """Most times that the model may correct a call. Default: as the tools of the agent."""
    tool_error_behavior: ErrorBehavior
    """What follows a failed task, and an agent that refuses or does not answer: `'failed'` (default) tells the model,
    `'retry'` asks the model to try again, `'error'` raises `RemoteError` or `A2AError`. A refusal of the arguments
    always asks the model to try again."""
    tools: Literal['agent', 'skills']
    """`'agent'` (default) for one tool, `'skills'` for one tool for each skill of the card."""
    include_descriptions: bool
    """False to keep the texts of the card from the model. A tool then has a neutral description. Default True."""
    context: Literal['conversation', 'call']
    """`'conversation'` (default) to continue the remote conversation of the same tool, `'call'` to begin a conversation
    with each call."""


@checked
class A2AToolset(AbstractToolset[AgentDepsT], CallsRemoteAgent):
    """Tools that send messages to a remote A2A agent.

    ```python
    from pydantic_ai import Agent
    from pydantic_ai_a2a import A2AToolset

    agent = Agent('test', toolsets=[A2AToolset('https://weather.example.com')])
    ```

    Args:
        target: The agent: its URL, the URL of its card, its card, or an ASGI app or Pydantic AI agent in this process.
        options: See `ToolsetOptions`.

    Raises:
        TypeError: The target is none of these.
        UserError: A function for `headers` or `auth` is combined with an agent or app of this process.
    """

    def __init__(self, target: Target, **options: Unpack[ToolsetOptions[AgentDepsT]]) -> None:
        self._id = options.get('id')
        self._max_retries = options.get('max_retries')
        self._error_behavior: ErrorBehavior = options.get('tool_error_behavior', 'failed')
        self._context: Literal['conversation', 'call'] = options.get('context', 'conversation')
        headers, auth = options.get('headers'), options.get('auth')
        self._headers, self._auth = headers, auth
        self._target = target
        of_client = ('http_client', 'timeout', 'trusted_origins', 'card_keys')
        self._options: dict[str, Any] = {name: value for name, value in options.items() if name in of_client}
        self._is_dynamic = _is_function(headers) or _is_function(auth)
        if self._is_dynamic and not isinstance(target, (str, Mapping)):
            raise UserError('Functions for headers and auth need a target that is a URL or a card.')
        self._client = self._make(*((None, None) if self._is_dynamic else (headers, auth)))
        self._event: type[RemoteTaskEvent | A2ATaskEvent] = RemoteTaskEvent
        self._waiting: dict[tuple[str | None, str | None], RemoteQuestion] = {}
        """Remote tasks that wait in this process, by conversation and local call: ids of calls are not unique.

        The tasks are without what their answers do not need, because a question has any size.
        """
        self._of_run: list[tuple[str | None, str | None]] = []
        """Calls of a served run, which are forgotten at its end: the pending calls of its task have the questions."""
        self._running = RemoteTasks(self._client)
        self._known = _KnownTools(options.get('tools', 'agent'), options.get('include_descriptions', True))

    def _make(self, headers: Any, auth: Any) -> A2AClient:
        return A2AClient(self._target, headers=headers, auth=auth, **self._options)

    @property
    def id(self) -> str | None:
        """Id of the toolset."""
        return self._id

    @property
    def label(self) -> str:
        """Name of the toolset in errors, above all in the error of two tools with one name."""
        place = f' of {shown_url(self._target)}' if isinstance(self._target, str) else ''
        return f'{super().label}{place} (`tool_prefix=` of `A2A` renames its tools)'

    def emitting(self, event: type[RemoteTaskEvent | A2ATaskEvent]) -> Self:
        """Return the toolset with another kind of event for progress."""
        self._event = event
        return self

    async def for_run(self, ctx: RunContext[AgentDepsT]) -> Self:
        """Return the toolset of one run, with the credentials of the run."""
        toolset = copy(self)
        if self._is_dynamic:
            toolset._client = self._make(await _resolved(self._headers, ctx), await _resolved(self._auth, ctx))
        toolset._running = RemoteTasks(toolset._client)
        toolset._of_run = []
        return toolset

    async def __aenter__(self) -> Self:
        """Open the client."""
        await self._client.__aenter__()
        return self

    async def __aexit__(self, *args: Any) -> None:
        """Cancel the remote tasks that have not ended, within ten seconds, and close the client."""
        # A run that is cancelled once more leaves at once. The cancellations still have an open client.
        await asyncio.shield(asyncio.create_task(self._close()))

    async def _close(self) -> None:
        for call in self._of_run:
            self._waiting.pop(call, None)
        try:
            await self._running.aclose()
        finally:
            await self._client.__aexit__(None, None, None)

    async def get_tools(self, ctx: RunContext[AgentDepsT]) -> dict[str, ToolsetTool[AgentDepsT]]:
        """Return the tools of the agent's card.

        Raises:
            CardRefused: There is no card, or the card cannot be used.
            RemoteUnavailable: The agent cannot be reached.
        """
        card, _ = await self._client.find()
        return {
            name: ToolsetTool(
                toolset=self,
                tool_def=tool.definition,
                max_retries=ctx.max_retries if self._max_retries is None else self._max_retries,
                args_validator=_ANY if tool.typed else _MESSAGE,
            )
            for name, tool in (await self._known.of(card)).items()
        }

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[AgentDepsT], tool: ToolsetTool[AgentDepsT]
    ) -> Any:
        """Send a message to the agent, and return the answer when the task has ended.

        Raises:
            ApprovalRequired: The remote task waits for its client. See `remote_results`.
            ToolFailed: See `tool_error_behavior`.
            ModelRetry: The agent has refused the arguments.
        """
        card, agent_place = await self._client.find()
        agent = card['name'][:200]
        waiting, answer = self._answer(ctx)
        if waiting is not None and 'denied' in answer:
            await self._running.cancel(waiting['task'])
            raise ToolFailed(answer['denied'])
        # Another agent may choose the name of this one, but not its place.
        place = dump_json([*agent_place, self._id, name]).decode()
        options = SendOptions()
        if RUN_METADATA_URI in extensions_of(card):
            options['extensions'] = [RUN_METADATA_URI]
        tools = await self._known.of(card)
        if waiting is None:
            remote_tool = tools[name]
            parts = remote_tool.parts(tool_args)
            if remote_tool.skill_id is not None:
                options['metadata'] = {'skillId': remote_tool.skill_id}
            if self._context == 'conversation' and (context_id := _context_of(ctx, place)):
                options['context_id'] = context_id
        else:
            parts = answer.get('parts', [])
            options['task_id'], options['context_id'] = waiting['task'], waiting['context']
        # The same for a resumed run, another for a retried call.
        message_id = digest_id(ctx.run_id, ctx.tool_call_id, ctx.retry, options.get('task_id') or '', parts)
        message = Message(role='user', parts=parts, message_id=message_id)
        try:
            outcome = await self._follow(agent, self._updates(message, waiting, options), ctx)
            result = self._result(agent, place, outcome, ctx, waiting)
            fault = output_problem(outcome, tools[name].output if name in tools else None)
            if fault is not None:
                self._fail(f'The answer of the agent {agent} does not fit its outputSchema: {fault}.', None)
            return result
        except (A2AError, RemoteError) as error:
            if isinstance(error, InvalidParamsError) and waiting is None:
                raise ModelRetry(error.message) from error
            self._fail(_sentence(agent, error), error)

    def _answer(self, ctx: RunContext[AgentDepsT]) -> tuple[RemoteQuestion | None, RemoteAnswer]:
        """Return the remote task that this call answers, and the answer."""
        if not ctx.tool_call_approved:
            return None, {}
        metadata = cast('Mapping[str, Any]', ctx.tool_call_metadata or {})
        call = (ctx.conversation_id, ctx.tool_call_id)
        if ANSWER in metadata:
            self._waiting.pop(call, None)
            return metadata[WAITING], metadata[ANSWER]
        if (waiting := self._waiting.get(call)) is None:
            return None, {}
        answer = approval_of(waiting)
        del self._waiting[call]
        return waiting, answer

    def _updates(
        self, message: Message, waiting: RemoteQuestion | None, options: SendOptions
    ) -> AsyncGenerator[Update, None]:
        """Send a message, which may answer a task that waits, and return the events."""
        if waiting is None:
            return self._client.stream(message, **options)
        updates = self._client.stream(with_question(message, waiting.get('question')), **options)
        signs_in = waiting['state'] == 'auth-required'
        return after_sign_in(self._client, waiting['task'], updates) if signs_in else updates

    async def _follow(
        self, agent: str, updates: AsyncGenerator[Update, None], ctx: RunContext[AgentDepsT]
    ) -> Task | Message:
        """Return the task at its end or its next question, or the message in its place."""
        update: Update | None = None
        async with aclosing(self._running.follow(updates)) as followed:
            async for update in followed:
                if update.task_id is not None and update.state is not None:
                    progress = self._event(agent=agent, task_id=update.task_id, state=update.state, text=update.text)
                    with suppress(UserError):  # a call without a run has no stream of events
                        await ctx.emit(progress)
        assert update is not None, 'a stream has an event'
        return update.outcome

    def _result(
        self,
        agent: str,
        place: str,
        outcome: Task | Message,
        ctx: RunContext[AgentDepsT],
        waiting: RemoteQuestion | None,
    ) -> Any:
        if 'status' not in outcome:
            return _returned(place, outcome, None)
        state = outcome['status']['state']
        used = totals(outcome)
        ctx.usage.incr(RunUsage(details=difference(used, {} if waiting is None else waiting.get('usage', {}))))
        if state in INTERRUPTED:
            question = question_of_task(agent, outcome)
            question['usage'] = used
            self._remember(ctx, question)
            raise ApprovalRequired({WAITING: question})
        if state != 'completed':
            text, correlation_id = status_message(outcome)
            self._fail(f'The task of the agent {agent} was {state}: {text}{_named(correlation_id)}', None)
        return _returned(place, outcome, outcome['id'])

    def _remember(self, ctx: RunContext[AgentDepsT], question: RemoteQuestion) -> None:
        pending = [
            PendingRemoteCall(id=call['id'], kind=call['kind'], tool='', text='', reply=call.get('reply', {}))
            for call in question['pending']
        ]
        task = RemoteQuestion(
            agent='',
            task=question['task'],
            context=question['context'],
            state=question['state'],
            text=question['text'][:_SHOWN],
            pending=pending,
            usage=question.get('usage', {}),
            question=question.get('question', ''),
        )
        call = (ctx.conversation_id, ctx.tool_call_id)
        if len(dump_json(task)) <= _LONGEST_WAITING:
            self._waiting[call] = task
        if 'task_id' in as_object((ctx.metadata or {}).get('a2a')):  # the run of a task
            self._of_run.append(call)
        if len(self._waiting) > MOST_WAITING:
            del self._waiting[next(iter(self._waiting))]

    def _fail(self, sentence: str, error: A2AError | RemoteError | None) -> NoReturn:
        if self._error_behavior == 'error':
            raise error or RemoteError(sentence)
        if error is not None:
            logger.warning('A tool call has failed: %.1000r', sentence)
        raise (ToolFailed if self._error_behavior == 'failed' else ModelRetry)(sentence) from error

    async def forget(self, ctx: RunContext[AgentDepsT], call_id: str) -> None:
        """Cancel the remote task of a call that was denied without `remote_results`, if this process knows the task."""
        if (waiting := self._waiting.pop((ctx.conversation_id, call_id), None)) is not None:
            async with await self.for_run(ctx) as toolset:
                await toolset._running.cancel(waiting['task'])


class _KnownTools:
    """The tools of a card, which are made once for each card: a card comes with each request, and is foreign text."""

    def __init__(self, kind: Literal['agent', 'skills'], include_descriptions: bool) -> None:
        self._kind: Literal['agent', 'skills'] = kind
        self._include_descriptions = include_descriptions
        self._card: AgentCard | None = None
        self._tools: dict[str, RemoteTool] = {}

    async def of(self, card: AgentCard) -> dict[str, RemoteTool]:
        if card != self._card:
            # A card of a megabyte of JSON Schemas takes half a second.
            make = partial(remote_tools, card, self._kind, include_descriptions=self._include_descriptions)
            self._tools = await asyncio.to_thread(make)
            self._card = card
        return self._tools


def _is_function(value: object) -> bool:
    return callable(value) and not isinstance(value, httpx2.Auth)


async def _resolved(value: Any, ctx: RunContext[Any]) -> Any:
    result = value(ctx) if _is_function(value) else value
    return await result if inspect.isawaitable(result) else result


def _context_of(ctx: RunContext[Any], place: str) -> str | None:
    """Return the remote conversation of the tool's last return in this conversation.

    Raises:
        UserError: The call runs in an activity, which does not have the messages.
    """
    try:
        messages = ctx.messages
    except UserError as error:
        raise UserError(
            'An A2AToolset that continues its conversation needs the messages of the run, which activities of Temporal'
            " do not have. Use context='call'."
        ) from error
    for message in reversed(messages):
        for part in reversed(message.parts if isinstance(message, ModelRequest) else ()):
            metadata = as_object(part.metadata) if isinstance(part, ToolReturnPart) else {}
            conversation = as_object(metadata.get(PLACE))
            if conversation.get('tool') == place:
                return conversation.get('context')
    return None


def _returned(place: str, answer: Task | Message, task_id: str | None) -> ToolReturn:
    metadata = {'tool': place, 'task': task_id, 'context': answer.get('context_id')}
    return ToolReturn(return_value=content_of(answer), metadata={PLACE: metadata})


def _sentence(agent: str, error: A2AError | RemoteError) -> str:
    if isinstance(error, A2AError):
        return f'The agent {agent} has refused the request: {error.message}' + _named(error.correlation_id)
    return f'The agent {agent} has not answered: {error}'


def _named(correlation_id: str | None) -> str:
    return f' (correlation id {correlation_id})' if correlation_id else ''
