"""The smallest agent: run it from this directory with `uvicorn hello:app`."""

from pydantic_ai import Agent
from pydantic_ai_a2a import to_a2a

agent = Agent('openai:gpt-5.2', instructions='Be fun!')
app = to_a2a(agent)
