"""The command line `pydantic-ai-a2a`, one module for each command.

Arguments come in. Text, an exit code and a running server go out.
"""
