"""The programs of a page become modules that type checkers understand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ..bounds import LIMIT
from .blocks import ROOT
from .types import modules

PAGE = """\
```python title="joker.py"
agent = Agent('test')
```

```python
import pydantic_ai_a2a
from joker import agent

app = agent.to_a2a(name='joker')
task = send()
```

```bash
uvicorn joker:app
```

```python
answer = reply(task)
task = send(answer)


def show():
    print(app, task)
```

```python title="client_0_3.py"
from a2a.client import A2AClient
```
"""


def test_page_code_blocks_become_importable_modules(tmp_path: Path) -> None:
    page = tmp_path / 'Two-agents.md'
    page.write_text(PAGE)
    made = {name: source.splitlines() for name, source in modules(page)}
    assert made == {
        'two_agents_2': ['', "agent = Agent('test')"],
        'two_agents_6': [
            *[''] * 5,
            'import pydantic_ai_a2a',
            'from two_agents_2 import agent',
            '',
            "app = pydantic_ai_a2a.to_a2a(agent, name='joker')",
            'task = send()',
        ],
        'two_agents_18': [
            'from two_agents_6 import app; from two_agents_6 import task',
            *[''] * 16,
            'answer = reply(task)',
            'task = send(answer)',
            '',
            '',
            'def show():',
            '    print(app, task)',
        ],
    }


@pytest.mark.slow
def test_type_checker_reports_misspelled_import(tmp_path: Path) -> None:
    program = tmp_path / 'program.py'
    program.write_text("""\
from pydantic_ai_a2a import A2AClent, A2AClient
from pydantic_ai_a2a.store import MemoryBackend, MemryBackend, TaskQueue
""")
    checked = subprocess.run(
        [sys.executable, '-m', 'mypy', '--strict', '--cache-dir', str(ROOT / '.mypy_cache'), str(program)],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT,
        cwd=tmp_path,
    )
    assert [line.partition(': ')[2] for line in checked.stdout.splitlines()[:-1]] == [
        'error: Module "pydantic_ai_a2a" has no attribute "A2AClent"; maybe "A2AClient"?  [attr-defined]',
        'error: Module "pydantic_ai_a2a.store" has no attribute "MemryBackend"; maybe "MemoryBackend"?  [attr-defined]',
    ]
