"""The tools of clients: declared in the metadata of messages, called by the agent, and answered by the client."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, cast

from pydantic_ai.tools import ToolDefinition

from ...errors import InvalidParamsError
from ...types.a2a_objects import AgentExtension, Message
from ..schemas.foreign_schemas import UnusableSchema
from ..schemas.inlined_schemas import inlined_schema

CLIENT_TOOLS_URI = 'https://pypi.org/project/pydantic-ai-a2a/#client-tools-v1'
"""Name of the extension, and key of its data in the metadata of messages. Data with another meaning gets another
URI."""

CLIENT_TOOLS = AgentExtension(
    uri=CLIENT_TOOLS_URI,
    description='A message may declare tools in its metadata. The agent may call the tools, and the client answers the'
    ' calls like other pending calls.',
)
"""Declaration of the extension on agent cards."""

CLIENT_TOOLS_FIELD = f'message.metadata["{CLIENT_TOOLS_URI}"]'
"""Path of the declaration in a request."""

_KEY = f'"{CLIENT_TOOLS_URI}"'.encode()
_NAME = re.compile(r'[A-Za-z0-9_-]{1,64}')
"""Names that the providers of models accept."""
_DESCRIPTION = 4_096
"""Most characters of a description."""
_OUTPUT = re.compile(r'final_result(_.*)?')
"""Names that Pydantic AI gives to tools for structured outputs."""


class ClientTools:
    """Reads the tools that messages declare.

    Args:
        limit: Most tools of a message.
        taken: Returns the names of the agent's tools, as far as known before a run.
    """

    def __init__(self, limit: int, taken: Callable[[], Collection[str]]) -> None:
        self._limit = limit
        self._taken = taken

    def check(self, message: Message) -> bool:
        """Return True if a message declares tools, or declares that its task has none.

        Raises:
            InvalidParamsError: A tool cannot be used, or has a reserved name, or the name of a tool of the agent.
        """
        tools = self.of(message)
        if tools is None:
            return False
        names = self._taken()
        for n, tool in enumerate(tools):
            if _OUTPUT.fullmatch(tool.name):
                fault = 'is reserved for the structured output of agents'
            elif tool.name in names:
                fault = 'is the name of a tool of the agent'
            else:
                continue
            raise InvalidParamsError.of(f'{CLIENT_TOOLS_FIELD}.tools[{n}].name', f'{fault}: choose another name')
        return True

    def of(self, message: Message) -> list[ToolDefinition] | None:
        """Return the tools that a message declares; None for a message without a declaration.

        Raises:
            InvalidParamsError: A tool cannot be used.
        """
        metadata: dict[str, Any] = message.get('metadata') or {}
        if CLIENT_TOOLS_URI not in metadata:
            return None
        declared: Any = metadata[CLIENT_TOOLS_URI]
        items: Any = cast('dict[str, Any]', declared).get('tools') if isinstance(declared, dict) else None
        if not isinstance(items, list):
            raise InvalidParamsError.of(f'{CLIENT_TOOLS_FIELD}.tools', 'must be a list of tools')
        tools = cast('list[Any]', items)
        if len(tools) > self._limit:
            raise InvalidParamsError.of(f'{CLIENT_TOOLS_FIELD}.tools', f'must not have more than {self._limit} tools')
        definitions: dict[str, ToolDefinition] = {}
        for n, tool in enumerate(tools):
            field = f'{CLIENT_TOOLS_FIELD}.tools[{n}]'
            definition = _definition(tool, field)
            if definition.name in definitions:
                raise InvalidParamsError.of(f'{field}.name', 'is the name of an earlier tool: choose another name')
            definitions[definition.name] = definition
        return [*definitions.values()]


def _definition(tool: Any, field: str) -> ToolDefinition:
    """Return a tool for the model. Members of other definitions of tools, such as MCP's, have no effect."""
    if not isinstance(tool, dict):
        raise InvalidParamsError.of(field, 'must be an object with a name, a description and an inputSchema')
    members = cast('dict[str, Any]', tool)
    name, description = members.get('name'), members.get('description', '')
    if not (isinstance(name, str) and _NAME.fullmatch(name)):
        raise InvalidParamsError.of(f'{field}.name', 'must have 1 to 64 letters, digits, "_" or "-" of ASCII')
    if not isinstance(description, str) or len(description) > _DESCRIPTION:
        raise InvalidParamsError.of(f'{field}.description', f'must be a text of at most {_DESCRIPTION} characters')
    try:
        schema = inlined_schema(members.get('inputSchema'), f'{field}.inputSchema')
    except UnusableSchema as error:
        raise InvalidParamsError.of(error.field, error.description) from None
    return ToolDefinition(name=name, description=description or None, parameters_json_schema=schema)


def has_tools(message: bytes) -> bool:
    """Return False if a stored message certainly declares no tools."""
    return _KEY in message


def metadata_of(tools: Sequence[ToolDefinition]) -> dict[str, Any]:
    """Return the metadata of a message that declares tools."""
    return {
        CLIENT_TOOLS_URI: {
            'tools': [
                {'name': tool.name, 'description': tool.description or '', 'inputSchema': tool.parameters_json_schema}
                for tool in tools
            ]
        }
    }
