"""A receiver of signed push notifications, which refuses a repeated request.

Run the script from this directory with `python signed_webhooks.py`. The
script serves the agent and the webhook, and needs no API key.
"""

import queue

import httpx2
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from pydantic_ai import Agent
from pydantic_ai_a2a import (
    NotificationVerifier,
    Push,
    TrustedKeys,
    mount,
    serve,
    to_a2a,
)
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

AGENT = 'https://agent.example.com/joker/'
key = ec.generate_private_key(ec.SECP256R1())  # your server reads a secret
private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
public = key.public_key().public_bytes(
    Encoding.PEM,
    PublicFormat.SubjectPublicKeyInfo,
)
requests: queue.Queue[tuple[dict[str, str], bytes]] = queue.Queue()


async def webhook(request: Request) -> Response:
    """The webhook of the client: another application, as a rule."""
    verify: NotificationVerifier = request.app.state.verify
    notification = await verify(request)
    requests.put((dict(request.headers), await request.body()))
    print('verified', *notification.content)
    return Response(status_code=204)


app = Starlette(routes=[Route('/webhook', webhook, methods=['POST'])])
push = Push(private_hosts=['127.0.0.1'], signing=[private])
mount(app, '/joker', to_a2a(Agent('test', name='joker'), url=AGENT, push=push))


def main() -> None:
    """Let the agent call the webhook, then repeat and change a request."""
    with serve(app) as server:
        app.state.verify = NotificationVerifier(
            TrustedKeys(keys=[public]),
            issuer=AGENT,
            audience=server.url,
        )
        hook = f'{server.url.rstrip("/")}/webhook'
        message = {
            'messageId': 'message-1',
            'role': 'ROLE_USER',
            'parts': [{'text': 'Tell me a joke.'}],
        }
        httpx2.post(
            f'{server.url.rstrip("/")}/joker/message:send',
            json={
                'message': message,
                'configuration': {'taskPushNotificationConfig': {'url': hook}},
            },
            timeout=60,
        )
        headers, body = [requests.get(timeout=60) for _ in range(3)][-1]
        for content in (body, body.replace(b'COMPLETED', b'CANCELED')):
            headers['content-length'] = str(len(content))
            answer = httpx2.post(
                hook,
                content=content,
                headers=headers,
                timeout=60,
            )
            print(answer.status_code, answer.text)


main()
