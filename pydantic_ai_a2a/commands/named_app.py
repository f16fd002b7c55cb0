"""Finds the app or the agent that a command line names."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from click import IntRange, UsageError, option
from pydantic_ai.agent import AbstractAgent
from starlette.applications import Starlette
from starlette.types import ASGIApp

from ..server.app.a2a_app import A2AApp
from ..server.app.agent_names import check_namespace, telling_name
from ..server.app.to_a2a import to_a2a
from ..server.auth.authenticator import Authenticator
from .async_commands import Command

PORT = IntRange(0, 65535)
"""The type of options for ports."""


def place_options(command: Command) -> Command:
    """Add the options for the directory of the module and for the URL of the store."""
    url = option('--backend', metavar='URL', help='URL of the store, such as sqlite:///agent.db.')
    directory = option('--app-dir', default='', metavar='DIR', help='Directory of MODULE. Default: the current one.')
    return directory(url(command))


def find(target: str, app_dir: str, backend: str | None, auth: str | None = None) -> ASGIApp:
    """Import the app that `target` names. An agent is made into an app with the given store and callers."""
    sys.path.insert(0, app_dir)
    target, value = _named(target, app_dir)
    if isinstance(value, AbstractAgent):
        authenticators = None if auth is None else _authenticators(auth, app_dir)
        return _served_agent(cast('AbstractAgent[Any, Any]', value), target, backend, authenticators)
    if not callable(value):
        raise UsageError(f'{target} is neither an app nor an agent, but of the type {type(value).__name__}.')
    if backend is not None:
        raise UsageError(f'--backend can only be given with an agent: {target} is an app, which has its own backend.')
    if auth is not None:
        raise UsageError(
            f'--auth can only be given with an agent: {target} is an app. Pass auth= to to_a2a() in its module.'
        )
    return cast('ASGIApp', value)


def file_of(target: str, app_dir: str) -> Path | None:
    """Return the file that `target` names instead of a module; None for a module."""
    file = target.partition(':')[0]
    return Path(app_dir, file).resolve() if file.endswith('.py') else None


def _named(target: str, app_dir: str) -> tuple[str, Any]:
    """Return what `target` names, and its module with its name."""
    module_name, _, name = target.partition(':')
    if not module_name:
        raise UsageError(f'{target!r} does not name an app: write MODULE:NAME, such as joker:{name}.')
    if (file := file_of(target, app_dir)) is not None:
        module = _import_file(file, module_name)
        module_name, name = module.__name__, name or _name_in_file(module, module_name)
    else:
        module, name = _import(module_name), name or 'app'
    value: Any = module
    for attribute in name.split('.'):
        if not hasattr(value, attribute):
            raise UsageError(f'The module {module_name!r} has no {name!r}.{_suggestion(module_name)}')
        value = getattr(value, attribute)
    return f'{module_name}:{name}', value


def _import_file(file: Path, shown: str) -> ModuleType:
    """Import a file under the name by which the other modules of its folder or package import it."""
    if not file.is_file():
        raise UsageError(f'There is no file {shown}.')
    parts, folder = [] if file.stem == '__init__' else [file.stem], file.parent
    while (folder / '__init__.py').is_file():
        parts, folder = [folder.name, *parts], folder.parent
    name = '.'.join(parts)
    sys.path.insert(0, str(folder))
    taken = name in sys.stdlib_module_names or '.' in file.stem
    if taken or (module := _import(name)).__file__ != str(file):
        raise UsageError(f'{shown} needs another name: another module has this name, or a dot is in it.')
    return module


def _name_in_file(module: ModuleType, file: str) -> str:
    """Return the name of the app of a file: `app`, or the only app, or the only agent."""
    if hasattr(module, 'app'):
        return 'app'
    for kind in (Starlette, AbstractAgent):
        names: dict[int, str] = {}
        for name, value in vars(module).items():
            if isinstance(value, kind):
                names.setdefault(id(cast('object', value)), name)
        match [*names.values()]:
            case [name]:
                return name
            case [first, *_]:
                several = ', '.join(names.values())
                raise UsageError(f'{file} has {several}: write which one to serve, such as {file}:{first}.')
            case _:
                pass
    raise UsageError(f'{file} has no app and no agent in a variable: write app = to_a2a(agent).')


def _import(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f'{name}.'.startswith(f'{error.name}.'):
            raise  # the module exists, but a module that it imports does not
        raise UsageError(f'There is no module {error.name!r}, in the directory or on the Python path.') from None


def _suggestion(module_name: str) -> str:
    values = vars(sys.modules[module_name])
    names = [repr(name) for name, value in values.items() if isinstance(value, A2AApp | AbstractAgent)]
    return f' It has {", ".join(names)}.' if names else ''


def _served_agent(
    agent: AbstractAgent[Any, Any], target: str, backend: str | None, authenticators: list[Authenticator] | None
) -> A2AApp:
    name = agent.name or telling_name(*reversed(re.split('[.:]', target)))
    try:
        check_namespace(agent.name, name, backend or 'memory')
        return to_a2a(agent, name=name, backend=backend or 'memory', auth=authenticators)
    except ValueError as error:  # only the values of --backend and --auth can be wrong here
        raise UsageError(str(error)) from None


def _authenticators(target: str, app_dir: str) -> list[Authenticator]:
    _, value = _named(target, app_dir)
    values = cast('list[object]', value if isinstance(value, list) else [value])
    authenticators = [item for item in values if isinstance(item, Authenticator)]
    if len(authenticators) < len(values):
        raise UsageError(f'{target} is not an Authenticator, such as a BearerAuth, and not a list of Authenticators.')
    return authenticators
