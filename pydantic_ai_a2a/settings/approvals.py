"""Answers of clients to waiting tool calls, and the callers that may approve the calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ..arguments import checked
from ..types.callers import Caller
from ..types.waiting_approvals import WaitingTask

Approvers: TypeAlias = str | Callable[[Caller, WaitingTask], bool | Awaitable[bool]]
"""The callers that may decide about waiting approvals: callers with a scope, or the callers for which a function of
the caller and the task returns True."""

PlainText: TypeAlias = Literal['none', 'deny', 'all'] | Collection[str]
"""The tool calls that a client may answer in plain words."""


@checked
@dataclass(frozen=True, kw_only=True)
class Approvals:
    """Answers of clients to waiting tool calls, and visibility of the calls' arguments."""

    plain_text_answers: PlainText = 'deny'
    """Tool calls that a client may answer in plain words instead of data. `'deny'`, the default: words answer a
    question or deny an approval. Names of tools: `yes` also approves calls of these tools. `'all'`: `yes` approves
    calls of every tool. `'none'`: words answer nothing. With `approvers`, `yes` approves only when a task waits for the
    first time."""
    change_arguments: bool | Collection[str] = True
    """Tools whose arguments an approval may change. True, the default: all tools except those in `hide_arguments`; no
    tool with `approvers`. Names of tools: these tools. False: no tool."""
    hide_arguments: Collection[str] = ()
    """Names of tools whose arguments are hidden from clients, in waiting calls and in `Results.progress`. Default:
    none."""

    approvers: Approvers | None = None
    """Callers that may approve or deny waiting calls. None, the default: the owner of the task. A scope: the callers
    with the scope. A function `(caller, task)`, which may be async: the callers for which the function returns True.
    Approvers have the tenant of the task. Needs `auth=`."""
    show_caller: bool = False
    """True shows approvers the id of the caller whose message has led to the calls. Default False: approvers see no
    names."""

    def __post_init__(self) -> None:
        if self.approvers == '':
            raise ValueError('Approvals.approvers is an empty scope: name a scope, or leave approvers= out.')

    @property
    def named_tools(self) -> dict[str, Collection[str]]:
        """The tools that the settings name, by setting."""
        return {
            'hide_arguments': self.hide_arguments,
            'plain_text_answers': () if isinstance(self.plain_text_answers, str) else self.plain_text_answers,
            'change_arguments': () if isinstance(self.change_arguments, bool) else self.change_arguments,
        }

    def words_approve(self, tool: str) -> bool:
        """Return True if plain words may approve a call of the tool."""
        answers = self.plain_text_answers
        return answers == 'all' or (not isinstance(answers, str) and tool in answers)

    def may_change(self, tool: str) -> bool:
        """Return True if an approval may change the arguments of a call of the tool."""
        if isinstance(self.change_arguments, bool):
            return self.change_arguments and self.approvers is None and tool not in self.hide_arguments
        return tool in self.change_arguments
