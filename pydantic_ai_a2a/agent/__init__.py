"""The run of an agent: what Pydantic AI is called with, and what comes out of the run while it is under way.

A claimed task and its messages come in. Events, steps and the output of the run go out; no other room calls the agent.
"""
