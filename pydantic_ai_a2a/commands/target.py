"""Finds the app or the agent that a command names. Knows no command."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from importlib import import_module
from types import ModuleType
from typing import Any, cast

from pydantic_ai.agent import AbstractAgent
from starlette.types import ASGIApp
from typing_extensions import TypeIs

from ..app import A2AApp
from ..auth.base import Authenticator
from ..compose import to_a2a
from ..serve import served

__all__ = ('Refused', 'add_target', 'apart', 'find', 'say')

_SHARED = "to_a2a(agent, backend='sqlite:///agent.db')"


class Refused(Exception):
    """A command that makes no sense; says why."""


def add_target(parser: ArgumentParser) -> None:
    """Add the arguments that name an app."""
    parser.add_argument('target', metavar='MODULE:NAME', help='where the app or the agent is, such as joker:app')
    parser.add_argument('--app-dir', default='', metavar='DIR', help='where the module is (default: here)')
    parser.add_argument('--backend', metavar='URL', help='where an agent keeps its tasks, such as sqlite:///agent.db')


def find(options: Namespace) -> ASGIApp:
    """The app that the command line names; an agent is made into one."""
    sys.path.insert(0, options.app_dir)
    return _app(_named(options.target), options)


def _named(target: str) -> Any:
    module_name, _, name = target.partition(':')
    if not module_name or not name:
        raise Refused(f'{target!r} does not name an app: write MODULE:NAME, such as joker:app.')
    found: Any = _import(module_name)
    for attribute in name.split('.'):
        if not hasattr(found, attribute):
            raise Refused(f'The module {module_name!r} has no {name!r}.{_suggestion(module_name)}')
        found = getattr(found, attribute)
    return found


def _import(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f'{name}.'.startswith(f'{error.name}.'):
            raise  # the module is there; one that it imports is not
        raise Refused(f'There is no module {error.name!r}, neither in the directory nor on the Python path.') from None


def _suggestion(module_name: str) -> str:
    values = vars(sys.modules[module_name])
    names = [repr(name) for name, value in values.items() if isinstance(value, A2AApp | AbstractAgent)]
    return f' It has {", ".join(names)}.' if names else ''


def _app(found: Any, options: Namespace) -> ASGIApp:
    app = found
    if _is_agent(found):
        return _served_agent(found, options)
    if not callable(found):
        raise Refused(f'{options.target} is neither an app nor an agent, but of the type {type(found).__name__}.')
    if options.backend is not None:
        raise Refused(f'--backend is for an agent; the app {options.target} has its backend already.')
    if getattr(options, 'auth', None) is not None:
        raise Refused(f'--auth is for an agent; the app {options.target} has its auth= already, or none.')
    return app


def _auth(options: Namespace) -> list[Authenticator] | None:
    target: str | None = getattr(options, 'auth', None)
    if target is None:
        return None
    found = _named(target)
    ways = cast('list[object]', found if isinstance(found, list) else [found])
    known = [way for way in ways if isinstance(way, Authenticator)]
    if len(known) < len(ways):
        raise Refused(f'{target} is no BearerAuth, JWTAuth or another Authenticator, and no list of them.')
    return known


def _is_agent(found: object) -> TypeIs[AbstractAgent[Any, Any]]:
    return isinstance(found, AbstractAgent)


def _served_agent(agent: AbstractAgent[Any, Any], options: Namespace) -> A2AApp:
    try:
        return to_a2a(agent, backend=options.backend or 'memory', auth=_auth(options))
    except ValueError as error:  # that of --backend or --auth, since nothing else is given
        raise Refused(str(error)) from None


def apart(app: ASGIApp, target: str) -> list[A2AApp]:
    """The A2A apps in an app, if their tasks can be run by other processes than serve them."""
    apps = list(served(app))
    if not apps:
        raise Refused(f'{target} is no app that to_a2a() made, and none is mounted in it.')
    if not all(each.hosting.durable for each in apps):
        raise Refused(
            f'{target} keeps its tasks in the memory of one process, which has to serve and run them.'
            f' Give it a backend that processes can share, such as {_SHARED}.'
        )
    return apps


def say(text: str) -> None:
    """Tell whoever watches the command what it does."""
    sys.stderr.write(f'pydantic-ai-a2a: {text}\n')
    sys.stderr.flush()
