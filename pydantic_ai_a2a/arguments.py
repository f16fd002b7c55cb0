"""Checks of users' arguments by their annotations.

The annotations of a function are read at its first call, so that the checks cost nothing at import.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import timedelta
from decimal import Decimal
from difflib import get_close_matches
from functools import cache, wraps
from math import isfinite
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, cast, get_args, get_origin

from typing_extensions import get_type_hints, is_typeddict

from .time_spans import Span

HTTP_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
"""A token of HTTP (RFC 9110): the legal names of headers and cookies."""

T = TypeVar('T', bound=Callable[..., Any])

_RENAMED = {
    'auth': 'authenticate authentication token tokens bearer bearer_token access_token api_key api_keys credentials',
    'backend': 'storage_url database database_url db db_url',
    'target': 'url base_url agent agent_url endpoint card',
    'workers': 'concurrency max_concurrency max_workers',
    'running': 'concurrency max_concurrency max_workers workers',
}
"""Other names that users give to an argument."""
_EXAMPLES = {
    'Authenticator': 'BearerAuth({TOKEN: CALLER}) or APIKeyAuth({KEY: CALLER})',
    'Backend': "'sqlite:///tasks.db'",
    'ClientCredentials': 'TOKEN, or headers={NAME: VALUE}',
    'Skill': "{'id': 'jokes', 'name': 'Jokes', 'description': 'Tells jokes.', 'tags': ['fun']}",
    'Workers': 'Workers(running=N) for N tasks at once. `uvicorn --workers N` starts N processes',
}
"""Examples of the value of an argument, by the name of a class that the argument takes."""
_OF_SERVERS = {
    ('to_a2a', name): f' Write run(app, {name}=...), or start `uvicorn` with --{name}.' for name in ('host', 'port')
}
"""Arguments that users give to a function, but that belong to the server."""
_UNIONS = (Union, UnionType)
_LISTS = (list, tuple, Sequence)
_SETS = (set, frozenset, AbstractSet, Collection)
_NUMBERS = (int, float)
_TEXT = (str, bytes, bytearray)
_NAMES = {
    str: 'a string',
    int: 'an integer',
    float: 'a number',
    bool: 'True or False',
    bytes: 'bytes',
    NoneType: 'None',
    Callable: 'a function',
}


def suggestion(word: str, choices: Collection[str]) -> str:
    """Return a sentence with the choice that resembles a misspelt word most; empty if no choice resembles it."""
    matches = get_close_matches(word, choices, n=1)
    return f' Did you mean {matches[0]!r}?' if matches else ''


def _elsewhere(word: str, hints: Mapping[str, Any]) -> str:
    """Return a sentence with the argument whose dataclass has the field `word`; empty if there is none."""
    for argument, hint in hints.items():
        for kind in _members(hint):
            if word in getattr(kind, '__dataclass_fields__', ()):
                return f' Write {argument}={kind.__name__}({word}=...).'
    argument = next((name for name, others in _RENAMED.items() if word in others.split() and name in hints), None)
    return '' if argument is None else f' Write {argument}={_example(hints[argument])}.'


def _example(hint: Any) -> str:
    """Return an example of a value; empty if the annotation has none."""
    members = _members(hint)
    names = [getattr(kind, '__name__', '') for member in members for kind in (member, *get_args(member))]
    example = next((example for name, example in _EXAMPLES.items() if name in names), '')
    return f'[{example}]' if example[:1] == '{' and not any(map(is_typeddict, members)) else example


class _Problem(NamedTuple):
    """An argument that does not match its annotation."""

    path: str
    """The argument, or the place within its value. Keys of mappings are left out, because a key may be a secret."""
    hint: Any
    value: object
    error: type[TypeError | ValueError] = TypeError


def checked(target: T) -> T:
    """Check the arguments of each call of a function or a class by their annotations.

    Raises:
        TypeError: At the call: a keyword is unknown, or an argument has a wrong type.
        ValueError: At the call: a string is not one of the allowed literals, or a number is not finite.
    """
    if inspect.isclass(target):
        setattr(target, '__init__', _checking(target.__init__, target, target.__name__))  # noqa: B010 - of any class
        return cast('T', target)
    return cast('T', _checking(target, target, target.__name__))


def _checking(function: Callable[..., Any], annotated: Any, name: str) -> Callable[..., Any]:
    def check(args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        hints, names = _annotations(function, annotated)
        if names is not None and (unknown := next((keyword for keyword in kwargs if keyword not in names), None)):
            remedy = _OF_SERVERS.get((name, unknown)) or _elsewhere(unknown, hints) or suggestion(unknown, names)
            raise TypeError(f'{name}() takes no {unknown!r}.{remedy}')
        for argument, value in _by_name(function, args, kwargs).items():
            problem = _mismatch(value, hints[argument], argument) if argument in hints else None
            if problem is not None:
                raise problem.error(f'{name}(): {_sentence(problem)}')

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        check(args, kwargs)
        return function(*args, **kwargs)

    @wraps(function)
    async def call_async(*args: Any, **kwargs: Any) -> Any:
        check(args, kwargs)
        return await function(*args, **kwargs)

    # Mocks and frameworks ask if a function is a coroutine function.
    return call_async if inspect.iscoroutinefunction(function) else call


_signature = cache(inspect.signature)


@cache
def _annotations(function: Callable[..., Any], annotated: Any) -> tuple[dict[str, Any], Collection[str] | None]:
    """Return the annotations of a function's arguments, and its keywords; None if it takes any keyword."""
    dataclass = cast('Mapping[str, Any]', vars(annotated)).get('__dataclass_params__')
    source: Any = annotated if dataclass is not None and dataclass.init else function
    hints = inspect.get_annotations(source, eval_str=True)
    names: set[str] = set()
    for parameter in _signature(function).parameters.values():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            kinds = (get_origin(kind) or kind for kind in get_args(hints.pop(parameter.name)))
            options = next(filter(is_typeddict, kinds), None)
            if options is None:
                return hints, None
            hints |= get_type_hints(options, include_extras=True)
            names |= options.__annotations__.keys()
        elif parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            hints[parameter.name] = Sequence[hints[parameter.name]]
        else:
            names.add(parameter.name)
    return hints, names


def _by_name(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by name."""
    try:
        positional = _signature(function).bind_partial(*args).arguments
    except TypeError:  # surplus arguments: the function itself raises an error that tells their number
        positional = {}
    return {**positional, **kwargs}


def _mismatch(value: object, hint: Any, path: str) -> _Problem | None:
    """Return the mismatch of a value and an annotation; None if the value matches."""
    hint = _bare(hint)
    origin, args = get_origin(hint), get_args(hint)
    if origin in _UNIONS:
        return _of_union(value, hint, path)
    if origin is Literal:
        fits = any(_is_like(value, literal) and value == literal for literal in args)
        error = ValueError if isinstance(value, str) else TypeError
        return None if fits else _Problem(path, hint, value, error)
    kind: Any = Mapping if is_typeddict(origin or hint) else origin or hint
    if not inspect.isclass(kind):  # such as Any, a type variable, or an unresolved reference
        return None
    if not _is_a(value, kind):
        return _Problem(path, hint, value)
    if isinstance(value, float | Decimal) and not isfinite(value):
        return _Problem(path, hint, value, ValueError)
    return next((problem for item in _items(value, kind, args, path) if (problem := _mismatch(*item))), None)


def _bare(hint: Any) -> Any:
    """Return an annotation without aliases and extras; for a `Span`, the types that may be passed."""
    while get_origin(hint) is Annotated or hasattr(hint, '__value__'):
        hint = hint.__origin__ if get_origin(hint) is Annotated else hint.__value__
    if get_origin(hint) is Span:
        return timedelta | float | get_args(hint)[0]
    return NoneType if hint is None else hint


def _of_union(value: object, hint: Any, path: str) -> _Problem | None:
    mismatches: list[_Problem] = []
    for member in get_args(hint):
        if (problem := _mismatch(value, member, path)) is None:
            return None
        mismatches.append(problem)
    inner = max(mismatches, key=lambda problem: len(problem.path))
    if inner.path != path:
        return inner
    error = ValueError if any(problem.error is ValueError for problem in mismatches) else TypeError
    return _Problem(path, hint, value, error)


def _is_like(value: object, literal: object) -> bool:
    """True if a value has a literal's type. A string may be of a subclass, such as an enum of strings."""
    return isinstance(value, str) if isinstance(literal, str) else type(value) is type(literal)


def _is_a(value: object, kind: type) -> bool:
    if kind in _NUMBERS:
        return isinstance(value, int if kind is int else _NUMBERS) and not isinstance(value, bool)
    if kind in _LISTS:
        return isinstance(value, Sequence) and not isinstance(value, _TEXT)
    if kind in _SETS:
        return isinstance(value, Collection) and not isinstance(value, (*_TEXT, Mapping))
    if kind is dict:
        return isinstance(value, Mapping)
    if kind is type and get_origin(value) is not None:  # such as list[int]
        return True
    try:
        return isinstance(value, kind)
    except TypeError:  # a protocol that cannot be asked
        return True


def _items(value: Any, kind: type, args: Sequence[Any], path: str) -> Iterator[tuple[object, Any, str]]:
    """Yield the items of a list, a set or a mapping, each with its annotation and its place."""
    if kind in (dict, Mapping) and args:
        for key, item in value.items():
            yield key, args[0], f'a key of {path}'
            yield item, args[1], f'a value of {path}'
    elif kind in (*_LISTS, *_SETS) and args:
        for n, item in enumerate(value):
            yield item, args[0], f'{path}[{n}]'


def _sentence(problem: _Problem) -> str:
    hints = _members(problem.hint)
    literals = [literal for hint in hints if get_origin(hint) is Literal for literal in get_args(hint)]
    is_number = bool({int, float}.intersection(hints))
    near = suggestion(problem.value, literals) if isinstance(problem.value, str) else ''
    shown = _shown(problem.value, is_public=bool(literals), is_number=is_number)
    wanted, kind = _described(problem.hint), type(problem.value)
    if twin := next(
        (hint for hint in hints if getattr(hint, '__name__', '') == kind.__name__ and hint is not kind), None
    ):
        wanted = wanted.replace(kind.__name__, f'{kind.__name__} of {_package(twin)}')
        shown += f' of {_package(kind)}'
    example = _example(problem.hint)
    remedy = f' Write {"" if "[" in problem.path else f"{problem.path}="}{example}.' if example else near
    return f'{problem.path} takes {wanted}, not {shown}.{remedy}'


def _package(kind: type) -> str:
    return kind.__module__.partition('.')[0]


def _members(hint: Any) -> list[Any]:
    hint = _bare(hint)
    return [inner for member in get_args(hint) for inner in _members(member)] if get_origin(hint) in _UNIONS else [hint]


def _described(hint: Any) -> str:
    """Return the types of an annotation in words."""
    members = list(dict.fromkeys(_members(hint)))
    if str in members:  # a list of well-known names among any other strings
        members = [member for member in members if get_origin(member) is not Literal]
    words: list[str] = []
    if timedelta in members and float in members:
        members = [member for member in members if member not in (timedelta, float)]
        words = ['seconds', 'a timedelta']
    words = list(dict.fromkeys([*words, *(word for member in members for word in _words(member))]))
    return ' or '.join([', '.join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _words(hint: Any) -> list[str]:
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return [repr(literal) for literal in args]
    kind = origin or hint
    if kind in _NAMES:
        return [_NAMES[kind]]
    if is_typeddict(kind):
        return [f'a dict like {kind.__name__}']
    if kind in (dict, Mapping):
        return ['a mapping']
    if kind in (*_LISTS, *_SETS):
        what = 'list' if kind in _LISTS else 'list or a set'
        items = ''.join('strings' if arg is str else _described(arg) for arg in args[:1])
        items = items.removeprefix('a ').removeprefix('an ')
        return [f'a {what} of {items}' if items else f'a {what}']
    return [_article(getattr(kind, '__name__', str(kind)).removeprefix('Abstract'))]


def _shown(value: object, *, is_public: bool, is_number: bool) -> str:
    """Return a value for an error text; only its type if the value may be a secret."""
    if value is None or isinstance(value, bool) or (isinstance(value, _NUMBERS) and (is_public or is_number)):
        return repr(value)
    if isinstance(value, str):
        shows = is_public or (is_number and value.replace('.', '', 1).isdigit())
        return f'the string {value!r}' if shows else 'a string'
    if isinstance(value, type):
        return f'the class {value.__name__}'
    return 'a function' if inspect.isroutine(value) else _article(type(value).__name__)


def _article(name: str) -> str:
    return f'{"an" if name[:1] in "AEIOaeio" else "a"} {name}'
