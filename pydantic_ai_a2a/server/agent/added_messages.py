"""The messages that a run adds to its conversation, whatever capabilities make of them."""

from __future__ import annotations

from typing import Any

from pydantic_ai import Agent, CallToolsNode
from pydantic_ai.messages import ModelMessage
from pydantic_ai.run import AgentRun


class AddedMessages:
    """The messages that a run adds, also if a capability or history processor builds messages anew or drops some.

    Pydantic AI finds the messages of a run by their run id, which such messages lack: later runs would not have the
    prompt.
    """

    def __init__(self) -> None:
        self._messages: list[ModelMessage] = []
        self._size = 0
        """Number of all messages of the run after the last step."""

    def note(self, run: AgentRun[Any, Any], done: Any, following: object) -> None:
        """Note the messages that a node has added, before the following node runs."""
        messages = run.all_messages()
        if not Agent.is_model_request_node(done):
            self._messages += messages[self._size :] if self._messages else ()
        elif type(following) is CallToolsNode:
            self._messages += messages[-1:] if done.is_resuming_without_prompt else messages[-2:]
        self._size = len(messages)

    def of(self, run: AgentRun[Any, Any]) -> list[ModelMessage]:
        """Return the messages that the run has added."""
        found = run.new_messages()
        return found if len(found) >= len(self._messages) else [*self._messages]
