"""The progress of remote tasks, as events of a run."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic_ai.messages import CapabilityEvent, CustomEvent


@dataclass(kw_only=True)
class RemoteTaskEvent(CustomEvent):
    """Progress of a remote task that an `A2AToolset` has started."""

    agent: str
    """Name of the remote agent."""
    task_id: str
    state: str
    """State of the task, such as `working`."""
    text: str = ''
    """New text of the task: of its status, or of an artifact."""


@dataclass(kw_only=True)
class A2ATaskEvent(CapabilityEvent, namespace='a2a', name='task'):
    """Progress of a remote task that the capability `A2A` has started."""

    agent: str
    """Name of the remote agent."""
    task_id: str
    state: str
    """State of the task, such as `working`."""
    text: str = ''
    """New text of the task: of its status, or of an artifact."""
