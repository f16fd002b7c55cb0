"""Arguments of the public functions and classes, as they are checked when they are given."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from math import inf, nan
from typing import Any, Protocol, cast

import pytest
from fastapi import FastAPI
from pydantic_ai import Agent
from pydantic_ai.capabilities import Hooks, PrefixTools, ToolSearch
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import CombinedToolset, ExternalToolset, FunctionToolset

import pydantic_ai_a2a
from pydantic_ai_a2a import (
    A2A,
    A2AClient,
    A2AModel,
    A2AToolset,
    Access,
    AllOf,
    APIKeyAuth,
    Approvals,
    BearerAuth,
    Budget,
    JWTAuth,
    Limits,
    Messages,
    NotificationVerifier,
    Postgres,
    Progress,
    Push,
    Quotas,
    Rate,
    RemoteAgent,
    Retention,
    RunOptions,
    StarletteAuth,
    Workers,
    mount,
    run,
    serve,
    to_a2a,
)
from pydantic_ai_a2a.arguments import checked
from pydantic_ai_a2a.time_spans import Span

from .app_client import Client, lifespan, state_of
from .bounds import LIMIT
from .cases import each_case

AGENT = Agent('test')
SECRET = 'correct-horse-battery'
URL = 'postgresql://host/database'
REMOTE = 'https://agent.example'


def error_of(call: Callable[..., object], *args: Any, **kwargs: Any) -> str:
    """The type and the text of the error of a call."""
    with pytest.raises((TypeError, ValueError)) as refused:
        call(*args, **kwargs)
    return f'{refused.type.__name__}: {refused.value}'


@each_case(
    ('options', 'text'),
    [
        ({'auth': SECRET}, 'a function or None, not a string. Write auth=BearerAuth({TOKEN: CALLER}) or APIKeyAuth('),
        ({'auth': {SECRET: 'ann'}}, 'not a dict. Write auth=BearerAuth({TOKEN: CALLER}) or APIKeyAuth({KEY: CALLER}).'),
        ({'auth': BearerAuth}, 'not the class BearerAuth.'),
        ({'auth': [SECRET]}, 'auth[0] takes an Authenticator, not a string. Write BearerAuth({TOKEN: CALLER}) or'),
        ({'token': SECRET}, "TypeError: to_a2a() takes no 'token'. Write auth=BearerAuth({TOKEN: CALLER}) or"),
        ({'api_keys': {SECRET: 'ann'}}, "to_a2a() takes no 'api_keys'. Write auth=BearerAuth({TOKEN: CALLER}) or"),
        ({'workers': 4}, 'workers takes a Workers, not an int. Write workers=Workers(running=N) for N tasks at once.'),
        ({'max_concurrency': 4}, "takes no 'max_concurrency'. Write workers=Workers(running=N) for N tasks at once."),
        ({'limits': Limits}, 'TypeError: to_a2a(): limits takes a Limits, not the class Limits.'),
        ({'limits': {'body': 3}}, 'TypeError: to_a2a(): limits takes a Limits, not a dict.'),
        ({'timeout': '5'}, "TypeError: to_a2a(): timeout takes seconds, a timedelta or None, not the string '5'."),
        ({'timeout': True}, 'timeout takes seconds, a timedelta or None, not True.'),
        ({'timeout': nan}, 'ValueError: to_a2a(): timeout takes seconds, a timedelta or None, not nan.'),
        ({'timeout': timedelta(0)}, 'timeout must be positive, not datetime.timedelta(0).'),
        ({'url': 'example.com'}, "'example.com': its scheme is missing. Write https://example.com."),
        ({'url': 'ftp://example.com'}, "takes an https or http URL with a host, such as https://example.com/, not 'f"),
        ({'url': 'https:///a'}, 'url takes an https or http URL with a host'),
        ({'docs_url': 'docs'}, "docs_url takes a path that begins with a slash, such as /docs, not 'docs'."),
        ({'urll': 'x'}, "TypeError: to_a2a() takes no 'urll'. Did you mean 'url'?"),
        ({'usage_limit': 3}, "to_a2a() takes no 'usage_limit'. Did you mean 'usage_limits'?"),
        ({'zzz': 3}, "TypeError: to_a2a() takes no 'zzz'."),
        ({'cors': ()}, "TypeError: to_a2a() takes no 'cors'. Write access=Access(cors=...)."),
        ({'authenticate': len}, "TypeError: to_a2a() takes no 'authenticate'. Write auth="),
        ({'pool_size': 3}, "TypeError: to_a2a() takes no 'pool_size'. Write backend=Postgres(pool_size=...)."),
        ({'storage_url': 'x'}, "to_a2a() takes no 'storage_url'. Write backend='sqlite:///tasks.db'."),
        ({'port': 8001}, "takes no 'port'. Write run(app, port=...), or start `uvicorn` with --port."),
        ({'skills': ['a']}, "skills[0] takes a dict like Skill, not a string. Write {'id': 'jokes', 'name': 'Jokes',"),
        ({'skills': 'jokes'}, "not a string. Write skills=[{'id': 'jokes', 'name': 'Jokes', 'description': 'Tells"),
        ({'middleware': [3]}, 'middleware[0] takes a Middleware, not an int.'),
        ({'exception_handlers': []}, 'exception_handlers takes a mapping or None, not a list.'),
        ({'lifespan': 3}, 'lifespan takes a function or None, not an int.'),
        ({'debug': 1}, 'debug takes True or False, not an int.'),
        ({'backend': 5}, 'backend takes a string, a Postgres or a Backend, not 5.'),
        ({'backend': f'mysql://{SECRET}@host/db'}, "a Backend, not a URL that begins with 'mysql'."),
        ({'backend': SECRET}, 'or a Backend, not another string.'),
        ({'backend': f'postgres//{SECRET}'}, "this one has no '://' or nothing after it."),
        ({'model': len}, 'model takes a Model, a string or None, not a function.'),
        ({'usage_limits': 3}, 'usage_limits takes a UsageLimits or None, not an int.'),
    ],
)  # fmt: skip
def test_invalid_to_a2a_argument_is_named_in_error(options: dict[str, Any], text: str) -> None:
    said = error_of(to_a2a, AGENT, **options)
    assert text in said
    assert SECRET not in said


@each_case(
    ('target', 'args', 'options', 'text'),
    [
        (to_a2a, ['openai:gpt-5.2'], {}, 'TypeError: to_a2a(): agent takes an Agent, not a string.'),
        (to_a2a, [], {}, "missing 1 required positional argument: 'agent'"),
        (to_a2a, [AGENT, AGENT], {}, 'takes 1 positional argument but 2 were given'),
        (Limits, [], {'bodyy': 1}, "TypeError: Limits() takes no 'bodyy'. Did you mean 'body'?"),
        (Limits, [], {'body': 1.5}, 'TypeError: Limits(): body takes an integer, not 1.5.'),
        (Workers, [], {'lease': '4'}, "Workers(): lease takes seconds or a timedelta, not the string '4'."),
        (Workers, [], {'lease': 'soon'}, 'Workers(): lease takes seconds or a timedelta, not a string.'),
        (Workers, [], {'lease': inf}, 'ValueError: Workers(): lease takes seconds or a timedelta, not inf.'),
        (Workers, [], {'lease': -1}, 'ValueError: Workers.lease must be positive, not -1.0.'),
        (Limits, [], {'max_wait': True}, 'Limits(): max_wait takes seconds, a timedelta or None, not True.'),
        (Limits, [], {'quotas': Limits()}, 'Limits(): quotas takes a Quotas or None, not a Limits.'),
        (Messages, [], {'while_working': 'stear'}, "not the string 'stear'. Did you mean 'steer'?"),
        (Messages, [], {'reply': 3}, "TypeError: Messages(): reply takes 'task', 'message' or a function, not 3."),
        (Access, [], {'cors': '*'}, 'Access(): cors takes a list or a set of strings, not a string.'),
        (Approvals, [], {'hide_arguments': 'x'}, 'hide_arguments takes a list or a set of strings, not a string.'),
        (Access, [], {'scopes': {'SendMessage': 3}}, 'a value of scopes takes a string or a list or a set of strings'),
        (Access, [], {'scopes': {3: 'a'}}, 'a key of scopes takes a string, not an int.'),
        (Messages, [], {'deps_headers': 'x-a'}, 'deps_headers takes a list or a set of strings, not a string.'),
        (Workers, [], {'worker': AGENT}, 'TypeError: Workers(): worker takes a Worker or None, not an Agent.'),
        (Retention, [], {'tasks': timedelta(-1)}, 'ValueError: Retention.tasks must be positive, not -86400.0.'),
        (Workers, [], {'drain_delay': -1}, 'ValueError: Workers.drain_delay must be 0 or more, not -1.0.'),
        (Rate, ['3', 60], {}, "Rate(): count takes an integer, not the string '3'."),
        (Rate, [3], {}, "missing 1 required positional argument: 'per'"),
        (Budget, [], {'window': 60, 'cost': Decimal('NaN')}, 'ValueError: Budget(): cost takes a Decimal, a number or'),
        (Budget, [], {'window': 60, 'of': 'callr'}, "not the string 'callr'. Did you mean 'caller'?"),
        (Quotas, [], {'rates': {'SendMessage': 3}}, 'Quotas(): a value of rates takes a Rate, not an int.'),
        (Quotas, [], {'budgets': Budget(window=60, tokens=3)}, 'budgets takes a list of Budget, not a Budget.'),
        (Workers, [], {'workers': 4}, "TypeError: Workers() takes no 'workers'. Write running=."),
        (A2AClient, [REMOTE], {'token': SECRET}, "takes no 'token'. Write auth=TOKEN, or headers={NAME: VALUE}."),
        (A2AClient, [REMOTE], {'auth': {'a': SECRET}}, 'not a dict. Write auth=TOKEN, or headers={NAME: VALUE}.'),
        (A2AClient, [REMOTE], {'auth': BearerAuth({SECRET: 'ann'})}, 'not a BearerAuth. Write auth=TOKEN, or'),
        (A2AClient, [REMOTE], {'auth': f'Bearer {SECRET}'}, 'ValueError: `auth` is the token alone: leave out'),
        (A2AClient, [], {'url': REMOTE}, "TypeError: A2AClient() takes no 'url'. Write target=."),
        (RemoteAgent, [REMOTE], {'api_key': SECRET}, "takes no 'api_key'. Write auth=TOKEN, or headers={NAME: VALUE}."),
        (A2AToolset, [REMOTE], {'bearer_token': SECRET}, "takes no 'bearer_token'. Write auth=TOKEN, or headers="),
        (A2A, [], {'base_url': REMOTE}, "TypeError: A2A() takes no 'base_url'. Write target=."),
        (BearerAuth, [{'ann': SECRET}], {}, 'has a secret as its value: write {SECRET: CALLER}.'),
        (BearerAuth, [{'ann': f'sha256:{"0" * 64}'}], {}, 'has a secret as its value: write {SECRET: CALLER}.'),
        (BearerAuth, [{'anna@example.com': f'sha256:{"0" * 64}'}], {}, 'has a secret as its value: write {SECRET: '),
        (BearerAuth, [{'anna@example.com': SECRET}], {}, 'is no bearer token, so that no request can have it: a token'),
        (APIKeyAuth, [{'ann': SECRET}], {}, 'has a secret as its value: write {SECRET: CALLER}.'),
        (serve, [AGENT], {'workers': 4}, 'serves in this process, without workers=. For N tasks at once, write'),
        (run, [AGENT], {'reload': True}, 'without reload=. Use `pydantic-ai-a2a serve --reload`.'),
        (Progress, [], {'tool': True}, "Progress() takes no 'tool'. Did you mean 'tools'?"),
        (Push, [], {'keys': [3]}, 'Push(): keys[0] takes a string, not an int.'),
        (Push, [], {'keys': SECRET}, 'Push(): keys takes a list of strings, not a string.'),
        (Postgres, [URL], {'connect_timeout': '5'}, 'Postgres(): connect_timeout takes seconds or a timedelta'),
        (Postgres, [URL], {'pool': 5}, "Postgres() takes no 'pool'. Did you mean 'pool_size'?"),
        (BearerAuth, [SECRET], {}, 'TypeError: BearerAuth(): tokens takes a mapping, not a string.'),
        (BearerAuth, [{SECRET: 3}], {}, 'BearerAuth(): a value of tokens takes a Caller or a string, not an int.'),
        (APIKeyAuth, [{SECRET: 'ann'}], {'heder': 'X'}, "APIKeyAuth() takes no 'heder'. Did you mean 'header'?"),
        (JWTAuth, ['https://x.io', 'a'], {'leeway': SECRET}, 'leeway takes seconds or a timedelta, not a string'),
        (StarletteAuth, [SECRET], {}, 'StarletteAuth(): schemes takes a mapping or None, not a string.'),
        (AllOf, [StarletteAuth(), SECRET], {}, 'AllOf(): others[0] takes an Authenticator, not a string.'),
        (mount, [AGENT, '/a', AGENT], {}, 'mount(): parent takes a Starlette, not an Agent.'),
        (mount, [FastAPI(), 'a', FastAPI()], {}, "ValueError: mount(): path takes a path that begins with a slash"),
    ],
)  # fmt: skip
def test_invalid_settings_and_auth_arguments_are_named_in_error(
    target: Any, args: list[Any], options: dict[str, Any], text: str
) -> None:
    said = error_of(target, *args, **options)
    assert text in said
    assert SECRET not in said


def test_time_spans_accept_seconds_and_timedelta() -> None:
    minute = timedelta(minutes=1)
    limits, workers = Limits(max_wait=minute), Workers(lease=minute, drain_delay=0)
    assert (limits.max_wait, Limits().max_wait) == (60.0, None)
    assert (workers.lease, workers.drain_delay) == (60.0, 0.0)
    assert Retention(tasks=60, events=0.5) == Retention(tasks=minute, events=timedelta(milliseconds=500))
    assert (Rate(3, 60), Rate(3, per=60).per) == (Rate(3, minute), minute)
    assert Budget(window=60, tokens=1) == Budget(window=minute, tokens=1)
    assert Postgres(URL, connect_timeout=minute).connect_timeout == 60.0
    assert JWTAuth('https://x.io', 'a', leeway=minute, cache=minute)
    assert Workers.lease == 30.0


def test_common_argument_values_are_accepted() -> None:
    assert to_a2a(
        AGENT,
        timeout=timedelta(seconds=5),
        messages=Messages(allowed_file_url_schemes=frozenset({'s3'})),
        access=Access(cors=('*',)),
    )
    assert to_a2a(
        AGENT,
        approvals=Approvals(hide_arguments=()),
        access=Access(extended_card=None, tenants=['a']),
        url='HTTPS://example.com/agent/',
    )
    assert to_a2a(AGENT, instructions=lambda: 'Be fun.', output_type=[int, str], model='test', retries=2)


class Name(StrEnum):
    """Strings of a user's own type, as settings libraries read them."""

    STEER = 'steer'
    VERSION = '1.0'
    WORDS = 'all'


def test_str_subclass_values_are_accepted() -> None:
    options: dict[str, Any] = {
        'messages': Messages(while_working=cast('Any', Name.STEER)),
        'approvals': Approvals(plain_text_answers=Name.WORDS),
    }
    assert to_a2a(AGENT, access=Access(versions=cast('Any', [Name.VERSION])), **options)
    said = error_of(Messages, while_working=Name.WORDS)
    assert "while_working takes 'queue', 'steer' or 'reject', not the string" in said


def test_sets_of_names_are_accepted() -> None:
    assert to_a2a(AGENT, access=Access(cors={'https://a.example'}, allowed_hosts={'a.example'}))
    assert Push(private_hosts={'hooks.internal'})


async def test_run_option_none_means_not_given() -> None:
    options: dict[str, Any] = dict.fromkeys(RunOptions.__annotations__)
    app = to_a2a(AGENT, deps_factory=lambda _: None, approvals=Approvals(hide_arguments=()), **options)
    async with lifespan(app):
        assert state_of(await Client(app).send('hi')) == 'COMPLETED'


def look(city: str) -> str:
    """Look."""
    return city


def keep_all(ctx: Any, tool: ToolDefinition) -> bool:
    return True


async def renamed(ctx: Any, tools: list[ToolDefinition]) -> list[ToolDefinition]:
    return tools


TOOLS: FunctionToolset[Any] = FunctionToolset([look])
EXTERNAL: ExternalToolset[Any] = ExternalToolset([ToolDefinition(name='book')])


KNOWN_TOOLS: list[tuple[Agent[Any, Any], dict[str, Any]]] = [
    (Agent('test', tools=[look]), {}),
    (Agent('test', toolsets=[CombinedToolset([TOOLS, EXTERNAL])]), {}),
    (Agent('test', toolsets=[TOOLS.filtered(keep_all)], capabilities=[ToolSearch()]), {}),
    (Agent('test', toolsets=[TOOLS.prepared(renamed)]), {}),
    (Agent('test', toolsets=[CombinedToolset([TOOLS, TOOLS.prefixed('a')])]), {}),
    (Agent('test'), {'toolsets': [TOOLS.approval_required()]}),
]


@pytest.mark.parametrize(
    ('agent', 'options'),
    KNOWN_TOOLS,
    ids=['function', 'combined', 'filtered', 'prepared', 'prefixed', 'of-the-run'],
)
def test_unknown_tool_in_hide_arguments_is_refused(agent: Agent[Any, Any], options: dict[str, Any]) -> None:
    said = error_of(to_a2a, agent, approvals=Approvals(hide_arguments=['look', 'lok']), **options)
    assert "ValueError: hide_arguments has 'lok', but the agent has no such tool. Did you mean 'look'? It has" in said
    assert to_a2a(agent, approvals=Approvals(hide_arguments=['look']), **options)


def no_capability(ctx: Any) -> None: ...


def dynamic_toolset(ctx: Any) -> FunctionToolset[Any]:
    return TOOLS


UNKNOWN_TOOLS: list[tuple[Agent[Any, Any], dict[str, Any]]] = [
    (Agent('test', toolsets=[dynamic_toolset]), {}),
    (Agent('test', capabilities=[PrefixTools(Hooks(), prefix='a')]), {}),
    (Agent('test'), {'capabilities': [no_capability]}),
    (Agent('test'), {'spec': {'model': 'test'}}),
]


@pytest.mark.parametrize(
    ('agent', 'options'),
    UNKNOWN_TOOLS,
    ids=['dynamic', 'capability', 'dynamic-capability', 'spec'],
)
def test_hide_arguments_accepts_tools_known_only_at_run(agent: Agent[Any, Any], options: dict[str, Any]) -> None:
    assert to_a2a(agent, approvals=Approvals(hide_arguments=['lok']), **options)


class Speaker(Protocol):
    def speak(self) -> None: ...


def test_annotation_without_runtime_check_accepts_all_values() -> None:
    @checked
    def told(speaker: Speaker, *words: Sequence[str], **options: Any) -> Any:
        return speaker, words, options

    word: Any = ['a']
    listener: Any = 3
    assert told(listener, word, word, any=1) == (3, (['a'], ['a']), {'any': 1})
    assert 'words[1][0] takes a string, not an int.' in error_of(told, 3, ['a'], [3])


def test_required_time_span_has_no_default() -> None:
    with pytest.raises(AttributeError):
        assert Rate.per
    assert Span(3.0)


WITHOUT_EXTRAS = """
import sys

from pydantic_ai import Agent
from pydantic_ai_a2a import A2AClient, Access, NotificationVerifier, Push, TrustedKeys, to_a2a

sys.modules['jwt'] = None
A2AClient('https://x')
sys.modules['httpx2'] = None
to_a2a(Agent('test'))
for use in (
    lambda: to_a2a(Agent('test'), push=Push()),
    lambda: to_a2a(Agent('test'), url='https://x/', access=Access(signing=['key'])),
    lambda: A2AClient('https://x', card_keys=TrustedKeys(keys=['key'])),
    lambda: NotificationVerifier(TrustedKeys(keys=['key']), issuer='https://x', audience='https://y'),
):
    try:
        use()
    except ImportError as error:
        print(error)
"""


def test_argument_without_its_extra_names_missing_extra() -> None:
    command = [sys.executable, '-c', WITHOUT_EXTRAS]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=True)
    assert ran.stdout.splitlines() == [
        f"{argument} needs the extra `{extra}`: pip install 'pydantic-ai-a2a[{extra}]', in a checkout '.[{extra}]'"
        for argument, extra in (
            ('push=', 'push'),
            ('Access.signing', 'jwt'),
            ('card_keys', 'jwt'),
            ('NotificationVerifier', 'jwt'),
        )
    ]


@pytest.mark.parametrize(
    ('use', 'text'),
    [
        (lambda: A2AClient(REMOTE, **untyped(timout=3)), "A2AClient() takes no 'timout'. Did you mean 'timeout'?"),
        (lambda: A2AClient(REMOTE, **untyped(timeout='3')), 'A2AClient(): timeout takes seconds or a timedelta, not'),
        (
            lambda: A2AClient(**untyped(target=3)),
            'A2AClient(): target takes a string, a dict like AgentCard, an Agent or',
        ),
        (
            lambda: A2AClient(REMOTE).send('x', **untyped(contextid='c')),
            "send() takes no 'contextid'. Did you mean",
        ),
        (
            lambda: A2AClient(REMOTE).stream('x', **untyped(task_id=3)),
            'stream(): task_id takes a string or None, not an int.',
        ),
        (lambda: A2AClient(REMOTE).get(**untyped(task_id=3)), 'get(): task_id takes a string, not an int.'),
        (lambda: A2AClient(REMOTE).cancel('t', **untyped(metdata={})), "cancel() takes no 'metdata'. Did you mean"),
        (lambda: A2AClient(REMOTE).conversation(**untyped(context=3)), "conversation() takes no 'context'. Did you"),
        (lambda: RemoteAgent(REMOTE, **untyped(nam='x')), "RemoteAgent() takes no 'nam'. Did you mean 'name'?"),
        (
            lambda: A2AToolset[None](REMOTE, **untyped(tool='agent')),
            "A2AToolset() takes no 'tool'. Did you mean 'tools'?",
        ),
        (lambda: A2A[None](REMOTE, **untyped(heders={})), "A2A() takes no 'heders'. Did you mean 'headers'?"),
        (lambda: A2AModel(**untyped(client=REMOTE)), 'A2AModel(): client takes an A2AClient, not a string.'),
        (
            lambda: NotificationVerifier(**untyped(trusted=3)),
            'NotificationVerifier(): trusted takes a TrustedKeys',
        ),
    ],
)
async def test_invalid_client_argument_is_named_in_error(use: Callable[[], object], text: str) -> None:
    async def calling() -> None:
        if inspect.isawaitable(waits := use()):
            await waits

    with pytest.raises(TypeError) as refused:
        await calling()
    assert str(refused.value).startswith(text)


def test_client_in_plain_with_names_async_with() -> None:
    client: Any = A2AClient(REMOTE)
    with pytest.raises(TypeError, match=r'write `async with A2AClient\(\.\.\.\)`'), client:
        pass


@pytest.mark.parametrize('name', ['A2AServer', 'FastA2A'])
def test_import_of_server_class_names_to_a2a(name: str) -> None:
    with pytest.raises(ImportError, match=f"has no '{name}': write `from pydantic_ai_a2a import to_a2a`"):
        getattr(pydantic_ai_a2a, name)


@pytest.mark.parametrize('output_type', [3, 'City', {'name': str}, [str, 3]])
def test_invalid_output_type_is_refused(output_type: Any) -> None:
    with pytest.raises(TypeError, match='output_type takes a type, a function, an output such as ToolOutput'):
        to_a2a(Agent('test'), output_type=output_type)


def untyped(**options: Any) -> Any:
    """Arguments that a type checker would refuse."""
    return options
