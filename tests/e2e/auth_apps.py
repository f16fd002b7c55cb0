"""Agents that only certain callers may ask, and others with more on their cards. They run in the servers' processes."""

from __future__ import annotations

from pydantic_ai import Agent

from pydantic_ai_a2a import Access, APIKeyAuth, BearerAuth, Caller, JWTAuth, Messages, hash_key, to_a2a

TOKEN, KEY = 'the-token-of-ann-1234', 'the-key-of-bob-1234'
ISSUER, AUDIENCE, SECRET = 'https://issuer.example.com', 'agent', 'a secret of the issuer and the agent'

ANN = Caller(id='ann', scopes=frozenset({'send'}))
BY_TOKEN = BearerAuth({hash_key(TOKEN): ANN})
BY_KEY = APIKeyAuth({hash_key(KEY): 'bob'})
BY_JWT = JWTAuth(ISSUER, AUDIENCE, secret=SECRET)

app = to_a2a(Agent('test'), auth=[BY_TOKEN, BY_KEY, BY_JWT], access=Access(scopes={'SendMessage': 'send'}))
in_query = to_a2a(Agent('test'), auth=APIKeyAuth({hash_key(KEY): 'bob'}, query='key'))

extended = to_a2a(
    Agent('test'),
    auth=[BearerAuth({TOKEN: 'ann'}), APIKeyAuth({KEY: 'bob'})],
    access=Access(extended_card={'description': 'More.'}),
)
tenants = to_a2a(Agent('test'), access=Access(tenants=['acme', 'umbrella']))
messages = to_a2a(Agent('test'), messages=Messages(reply='message'))
