"""Examines a remote agent as a client meets the agent, and names what does not follow the specification.

The URL of an agent comes in. Findings go out, one for each step, as soon as the step is done.
"""
