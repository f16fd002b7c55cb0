"""Remote A2A agents as parts of Pydantic AI: tools of an agent, models and agents.

Calls of a model and messages of a run come in. Results, errors and pending calls of remote tasks go
out in Pydantic AI's types.
"""
