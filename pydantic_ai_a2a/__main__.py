"""`python -m pydantic_ai_a2a`: the command line, where its script is not on the PATH."""

from __future__ import annotations

from .commands.cli import main

if __name__ == '__main__':
    main()
