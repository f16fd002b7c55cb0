"""A weather agent with two tools, served over A2A. It answers with structured data or with text.

Run it from this directory with `uvicorn weather_agent:app`; `demo.py` shows what a client can do with it.
"""

from __future__ import annotations

import asyncio

from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry
from pydantic_ai_a2a import to_a2a

from scripted_model import scripted_model

STATIONS = {
    'OSL': ('Oslo', 12.5, 'rainy'),
    'PAR': ('Paris', 21.0, 'sunny'),
    'ROM': ('Rome', 27.5, 'sunny'),
}


class Weather(BaseModel):
    """The weather in one city."""

    city: str
    temperature: float
    """In degrees Celsius."""
    sky: str


agent = Agent(
    scripted_model,  # needs no API key; a real model is named here, such as 'openai:gpt-5.2'
    name='Weather Agent',
    description='Tells the weather in some cities of Europe, as it is now or averaged over the next hours.',
    instructions='Answer a question about the weather in a city with Weather, anything else with a sentence or two.',
    output_type=[Weather, str],
)


@agent.tool_plain
async def find_station(city: str) -> str:
    """Find the weather station of a city."""
    for station, (name, _, _) in STATIONS.items():
        if name == city:
            return station
    raise ModelRetry(f'There is no weather station in {city}.')


@agent.tool_plain
async def measure(station: str, hours: float = 0) -> Weather:
    """Measure the weather at a station: now, or for some hours, of which this is the average."""
    await asyncio.sleep(hours * 3600)  # a client that does not want to wait cancels its task, and this with it
    city, temperature, sky = STATIONS[station]
    return Weather(city=city, temperature=temperature, sky=sky)


app = to_a2a(agent)
