from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.agent import AbstractAgent, WrapperAgent
from pydantic_ai.models.test import TestModel

import pydantic_ai_a2a
from pydantic_ai_a2a import A2AApp, Retention, to_a2a
from pydantic_ai_a2a.server.app.agent_method import attach
from pydantic_ai_a2a.server.store.sqlite.memory import MemoryBackend

from ...bounds import LIMIT


def test_importing_package_adds_to_a2a_to_every_agent() -> None:
    method: Any = AbstractAgent
    assert method.to_a2a is to_a2a
    wrapped: Any = WrapperAgent(Agent(TestModel(), name='wrapped'))
    app = wrapped.to_a2a(version='2.0.0')
    assert isinstance(app, A2AApp)
    assert (app.name, app.version) == ('wrapped', '2.0.0')


@pytest.mark.parametrize('first', ['pydantic_ai', 'pydantic_ai_a2a'])
def test_to_a2a_method_does_not_depend_on_import_order(first: str) -> None:
    code = f"""
import sys
import {first}
if {first!r} == 'pydantic_ai_a2a':
    assert 'pydantic_ai' not in sys.modules
import pydantic_ai_a2a, pydantic_ai
app = pydantic_ai.Agent('test', name='joker').to_a2a()
module = sys.modules['pydantic_ai.agent']
ours = [finder for finder in sys.meta_path if type(finder).__module__.startswith('pydantic_ai_a2a')]
print(app.name, ours, module.__loader__ is module.__spec__.loader, module.__loader__.get_source)
"""
    ran = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, timeout=LIMIT, check=True)
    assert ran.stdout.startswith('joker [] True <bound method')


def test_to_a2a_is_added_despite_another_meta_path_finder() -> None:
    code = """
import sys
from importlib.machinery import PathFinder
class Finder:
    find_spec = PathFinder.find_spec
sys.meta_path.insert(0, Finder)
import pydantic_ai_a2a, pydantic_ai
print(pydantic_ai.Agent('test', name='joker').to_a2a().name)
"""
    ran = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, timeout=LIMIT, check=True)
    assert ran.stdout == 'joker\n'


def test_existing_to_a2a_method_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AbstractAgent, 'to_a2a', 'their own')
    attach()
    assert vars(AbstractAgent)['to_a2a'] == 'their own'


def test_all_public_names_are_importable() -> None:
    public = vars(pydantic_ai_a2a)['__all__']
    assert [name for name in public if not hasattr(pydantic_ai_a2a, name)] == []
    assert set(public) <= set(dir(pydantic_ai_a2a))
    assert not hasattr(pydantic_ai_a2a, 'to_a3a')


def test_typing_imports_match_the_runtime_public_names() -> None:
    [block] = [node for node in ast.parse(Path(pydantic_ai_a2a.__file__).read_text()).body if isinstance(node, ast.If)]
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    modules = {name.asname: f'.{node.module}' for node in imports for name in node.names}
    assert {name: getattr(import_module(module, 'pydantic_ai_a2a'), str(name)) for name, module in modules.items()} == {
        name: getattr(pydantic_ai_a2a, name) for name in vars(pydantic_ai_a2a)['__all__']
    }


@pytest.mark.parametrize('option', ['message_history', 'run_id', 'timout'])
def test_unknown_run_option_is_refused(option: str) -> None:
    options: dict[str, Any] = {option: None}
    with pytest.raises(TypeError, match=f"to_a2a\\(\\) takes no '{option}'"):
        to_a2a(Agent(TestModel()), **options)


def test_backend_url_of_unknown_scheme_is_refused() -> None:
    backend: Any = 'mysql://localhost/agents'
    with pytest.raises(ValueError, match=r"or a Backend, not a URL that begins with 'mysql'"):
        to_a2a(Agent(TestModel()), backend=backend)


def test_namespace_option_is_refused_with_backend_object() -> None:
    backend = MemoryBackend('theirs', reader_lag=1_000_000)
    with pytest.raises(TypeError, match='cannot be combined with a Backend'):
        to_a2a(Agent(TestModel()), backend=backend, retention=Retention(namespace='mine'))
