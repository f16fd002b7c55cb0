"""The command line `pydantic-ai-a2a`, with a module for related commands.

Arguments come in. Text, an exit code and a running server go out.
"""
