"""The run of an agent: its input, its steps and its output, in the calls of Pydantic AI.

A claimed task and its messages come in. Events, steps and the output of the run go out. No other room calls the agent.
"""
