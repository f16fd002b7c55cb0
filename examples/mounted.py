"""Two agents inside one FastAPI application, each with an agent card of its own.

Run it from this directory with `uvicorn mounted:app`; the agents are at `/weather` and `/parrot`.
"""

from __future__ import annotations

from fastapi import FastAPI
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel
from pydantic_ai_a2a import mount, to_a2a

from weather_agent import app as weather

parrot = to_a2a(Agent(TestModel(custom_output_text='Polly wants a cracker.'), name='Parrot'))

app = FastAPI()
mount(app, '/weather', weather)
mount(app, '/parrot', parrot)


@app.get('/agents')
async def agents() -> list[str]:
    return ['/weather', '/parrot']
