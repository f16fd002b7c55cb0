"""The programs of a page become modules that type checkers understand."""

from __future__ import annotations

from pathlib import Path

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


def test_each_block_is_a_module_with_the_names_of_earlier_blocks_and_the_lines_of_the_page(tmp_path: Path) -> None:
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
