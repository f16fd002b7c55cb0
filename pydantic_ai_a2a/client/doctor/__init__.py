"""Examines a remote agent as a client meets the agent, and names violations of the specification.

The URL of an agent comes in. Findings go out, as soon as each step is done.
"""
