"""The command line `pydantic-ai-a2a`, with a module for each command.

Arguments come in. Text, an exit code and a running server go out. `command_group` has the line of each command. The
module `tasks` also has the command `cancel`. The modules without a command have what several commands share.
"""
