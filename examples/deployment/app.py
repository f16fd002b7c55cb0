"""Two agents in one server, stored in one database, with metrics on the console if `METRICS=console`.

Run it from this directory with `pydantic-ai-a2a serve app:app`; the agents are at `/joker` and `/poet`, and `/` lists
them. The directory's README has the commands for containers and for Kubernetes.
"""

from __future__ import annotations

import os

from opentelemetry.metrics import set_meter_provider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader
from pydantic_ai import Agent
from pydantic_ai_a2a import Workers, catalogue, to_a2a

MODEL = os.environ.get('MODEL', 'test')  # needs no API key; a real model is named here, such as 'openai:gpt-5.2'
DATABASE = os.environ.get('DATABASE_URL', 'sqlite:///agents.db')

if os.environ.get('METRICS') == 'console':
    # Before the server starts, which makes the instruments. A real deployment exports to a collector.
    set_meter_provider(MeterProvider([PeriodicExportingMetricReader(ConsoleMetricExporter())]))

# A load balancer has 5 seconds to notice the end of a server, and runs have 20 more seconds to finish.
workers = Workers(drain_delay=5, drain_grace=20)

joker = Agent(MODEL, name='joker', instructions='Be fun!')
poet = Agent(MODEL, name='poet', instructions='Answer in rhymes.')

app = catalogue([to_a2a(agent, backend=DATABASE, workers=workers) for agent in (joker, poet)])
