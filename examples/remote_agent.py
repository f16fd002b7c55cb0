"""A remote agent with the methods of a Pydantic AI agent: typed output, a conversation, and a stream.

Run the example from this directory with `python remote_agent.py`. The remote agent is the weather agent, in a server of
this process. Its model needs no API key.
"""

from __future__ import annotations

import asyncio

from pydantic_ai_a2a import RemoteAgent, serve

from weather_agent import Weather, app


async def main(url: str) -> None:
    station = RemoteAgent(url, Weather)
    paris = await station.run('How is the weather in Paris?')
    print(paris.output)
    rome = await station.run('And in Rome?', message_history=paris.all_messages())
    print(rome.output)

    guide = RemoteAgent(url)
    async with guide.run_stream('Hello, who are you?') as answer:
        async for text in answer.stream_text(delta=True):
            print(text, end='', flush=True)
    print()


if __name__ == '__main__':
    with serve(app) as server:
        asyncio.run(main(server.url))
