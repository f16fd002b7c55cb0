"""`make demo` and the demo of Temporal: they show what they say, and say so if they do not."""

from __future__ import annotations

import re

from inline_snapshot import snapshot

from ..behaviour.rows import covers
from ..temporal import temporal_program
from .official import OFFICIAL
from .server import process


@covers(OFFICIAL)
def test_the_demo_shows_every_operation_and_ends_by_itself() -> None:
    with process('examples/demo.py') as demo:
        assert demo.exit_code() == 0, demo.output
    shown = re.sub(r':\d{4,5}/', ':<port>/', demo.output)
    shown = re.sub(r'[0-9a-f]{32}', '<task>', shown)
    assert re.sub(r'\d+ ms', '<n> ms', shown) == snapshot("""\
The weather agent answers at http://127.0.0.1:<port>/

The agent card
   Weather Agent: Tells the weather in some cities of Europe, as it is now or averaged over the next hours.
   speaks A2A 1.0 over JSONRPC at http://127.0.0.1:<port>/
   answers with text/plain and application/json

A question; the agent calls its tools and answers with structured data
   you    How is the weather in Paris?
   agent  {"city": "Paris", "sky": "sunny", "temperature": 21.0}, a Weather

The same conversation goes on
   you    And in Rome?
   agent  {"city": "Rome", "sky": "sunny", "temperature": 27.5}, a Weather
   you    Which of them is warmer?
   agent  It is warmer in Rome, with 27.5 °C against 21.0 °C in Paris.

Small talk, streamed as it is written
   you    Hello, who are you?
   agent  Hello! I am the weather agent. Ask me how the weather is in Oslo, in Paris or in Rome.

A slow task, cancelled
   you    What is the average temperature in Oslo over 2 hours?
   agent  I measure for 2 hours; that takes its time.
   you    cancel it
   the task is canceled, <n> ms later

All tasks, the newest first
   <task>  canceled   What is the average temperature in Oslo over 2 hours?
   <task>  completed  Hello, who are you?
   <task>  completed  Which of them is warmer?
   <task>  completed  And in Rome?
   <task>  completed  How is the weather in Paris?

Everything was as expected.
""")


SPOILED = """
import runpy, sys
sys.path.insert(0, 'examples')
import weather_agent
weather_agent.STATIONS['ROM'] = ('Rome', -3.0, 'snowy')
runpy.run_path('examples/demo.py', run_name='__main__')
"""


def test_the_demo_fails_with_a_clear_line_if_the_agent_answers_something_else() -> None:
    with process('-c', SPOILED) as demo:
        assert demo.exit_code() == 1, demo.output
    failure = demo.output.splitlines()[-1]
    assert re.match(r"The demo failed: Unexpected\(.the data should be {'city': 'Rome', 'temperature': 27.5", failure)
    assert 'Traceback' not in demo.output


def test_the_demo_of_temporal_kills_a_server_and_another_one_has_the_answer() -> None:
    temporal_program()  # the demo starts it
    with process('examples/temporal/demo.py') as demo:
        assert demo.exit_code() == 0, demo.output
    assert demo.output == snapshot("""\
The first server has started a workflow.
The hotel is being booked, and the server is killed.
The second server answers: two trains to Porto; a room in Porto
Calls of tools: ['find_trains', 'book_hotel']
""")
