"""Streams one message with the official client of any release from 0.2.5 to 0.3.x, and prints the states that it reads.

`test_streams.py` runs it where the release is installed.
"""

from __future__ import annotations

import asyncio
import sys

import httpx
from a2a.client import A2AClient
from a2a.types import SendStreamingMessageRequest

REQUEST = {
    'id': '1',
    'params': {
        'message': {
            'kind': 'message',
            'role': 'user',
            'parts': [{'kind': 'text', 'text': 'hello'}],
            'messageId': 'message-of-an-older-release',
        }
    },
}


async def main(url: str) -> None:
    async with httpx.AsyncClient(timeout=60) as http:
        stream = A2AClient(http, url=url).send_message_streaming(SendStreamingMessageRequest.model_validate(REQUEST))
        async for answer in stream:
            result = answer.model_dump(mode='json', by_alias=True)['result']
            if 'status' in result:
                print(result['status']['state'])


asyncio.run(main(sys.argv[1]))
