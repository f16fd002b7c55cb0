"""Remote A2A agents as parts of Pydantic AI: tools of an agent.

Calls of a model come in. Results, errors and pending calls of remote tasks go out in Pydantic AI's types.
"""
