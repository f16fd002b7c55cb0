"""Several agents in one server, each with an agent card of its own.

Run the server from this directory with `uvicorn several_agents:app`. The
agents are at `/translator` and `/summarizer`. The models need no API key: each
answers with a fixed text.
"""

from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel
from pydantic_ai_a2a import catalogue, to_a2a

french = TestModel(custom_output_text='Bonjour.')
short = TestModel(custom_output_text='A greeting.')
translator = Agent(french, name='translator')
summarizer = Agent(short, name='summarizer')

app = catalogue([to_a2a(translator), to_a2a(summarizer)])
