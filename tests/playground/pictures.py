"""Makes the pictures of the playground: `python -m tests.playground.pictures` writes them into `docs/images`."""

from __future__ import annotations

from datetime import date
from io import BytesIO
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright
from pydantic import BaseModel
from pydantic_ai import Agent

from pydantic_ai_a2a import Progress, Results, Server, serve, to_a2a

from ..docs.blocks import ROOT
from .agents import scripted, tool_call
from .browser import ARGUMENTS, chromium

__all__ = ('IMAGES', 'MOVING', 'MOVING_INBOX', 'NAMES')

IMAGES = ROOT / 'docs' / 'images'
NAMES = ('playground-light', 'playground-dark', 'playground-approval', 'playground-narrow')
MOVING = 'crash-and-approval.gif'
MOVING_INBOX = 'inbox.gif'

_PLAN = """### Three days in Lisbon

1. **Alfama** on foot, and tram 28 in the evening
2. **Belém**: the tower, the monastery, and *pastéis de nata*
3. A train to **Sintra**

| Day | Weather | High |
|---|---|---|
| Friday | sunny | 24 °C |
| Saturday | sunny | 25 °C |
| Sunday | showers | 21 °C |

Shall I book the hotel near the [castle](https://example.com/castle)?
"""
_SKILLS: Any = [
    {
        'id': 'trips',
        'name': 'Plan trips',
        'description': 'Plans days by weather and taste.',
        'tags': ['travel', 'weather'],
        'examples': ['Plan three days in Lisbon.', 'Book the hotel.'],
    }
]


class Stay(BaseModel):
    """A booked stay."""

    hotel: str
    arrival: date
    nights: int


def travel_agent(after: str = _PLAN) -> Agent[None, Any]:
    """An agent that plans a trip, and asks before a hotel is booked. After tools, the agent sends the given text."""
    booking = tool_call(
        'book', '{"hotel": "Solar do Castelo", "arrival": "2026-05-15", "nights": 2, "breakfast": true}'
    )
    script = {
        'Plan three days in Lisbon.': [tool_call('forecast', '{"city": "Lisbon", "days": 3}')],
        'Which hotel is near the castle?': ['The **Solar do Castelo**, within the walls. It has a garden.'],
        'Book the hotel.': ['The hotel near the castle has a room.', booking],
        'Book the hotel for two nights.': [booking],
    }
    agent = scripted(script, after, name='Travel agent', description='Plans trips, and books hotels when you approve.')

    @agent.tool_plain
    def forecast(city: str, days: int) -> str:
        return 'sunny'

    @agent.tool_plain(requires_approval=True)
    def book(hotel: str, arrival: date, nights: int, breakfast: bool = False) -> Stay:
        """Book a hotel.

        Args:
            hotel: Name of the hotel.
            arrival: First night.
            nights: Number of nights.
            breakfast: True books breakfast, too.
        """
        return Stay(hotel=hotel, arrival=arrival, nights=nights)

    assert {forecast, book}
    return agent


def _talk(browser: Browser, server: Server, *messages: str, events: bool = False, **options: Any) -> Page:
    page = browser.new_context(**options).new_page()
    page.goto(str(server.docs_url))
    for message in messages:
        page.get_by_role('textbox', name='Message', exact=True).fill(message)
        page.keyboard.press('Enter')
        state = page.locator('#state').get_by_text('required' if message.startswith('Book') else 'completed')
        state.wait_for(state='attached')
    if events:
        page.get_by_role('button', name='Events').click()
        page.get_by_text('statusUpdate completed').wait_for()
        page.get_by_text('statusUpdate tool').first.click()
        page.get_by_role('group', name='JSON').wait_for()
    page.wait_for_function('!document.querySelector("[aria-busy=true]")')
    return page


def main() -> None:
    """Write the pictures."""
    app = to_a2a(travel_agent(), skills=_SKILLS, results=Results(progress=Progress(tools=True)))
    plan, book = 'Plan three days in Lisbon.', 'Book the hotel.'
    wide: Any = {'width': 1080, 'height': 620}
    IMAGES.mkdir(exist_ok=True)
    with serve(app) as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        pages = (
            _talk(browser, server, plan, events=True, viewport=wide),
            _talk(browser, server, plan, viewport={'width': 1000, 'height': 640}, color_scheme='dark'),
            _talk(browser, server, plan, book, viewport={'width': 1000, 'height': 720}),
            _talk(browser, server, plan, viewport={'width': 390, 'height': 780}, device_scale_factor=2),
        )
        for name, page in zip(NAMES, pages, strict=True):
            picture = Image.open(BytesIO(page.screenshot())).convert('RGB')
            picture.quantize(method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
                IMAGES / f'{name}.png', optimize=True
            )
        browser.close()


if __name__ == '__main__':
    main()
