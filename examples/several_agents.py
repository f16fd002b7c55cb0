"""Several agents in one server, each with an agent card of its own.

Run the server from this directory with `uvicorn several_agents:app`. The
models need no API key: each answers with a fixed text.
"""

from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel
from starlette.applications import Starlette

from pydantic_ai_a2a import mount, to_a2a

french = TestModel(custom_output_text='Bonjour.')
short = TestModel(custom_output_text='A greeting.')
translator = Agent(french, name='translator')
summarizer = Agent(short, name='summarizer')

app = Starlette()
mount(app, '/translator', to_a2a(translator))
mount(app, '/summarizer', to_a2a(summarizer))
