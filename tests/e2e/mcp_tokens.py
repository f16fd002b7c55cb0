"""The tokens of the agent and of its MCP server."""

TOKENS = {'ann': 'token-of-ann-at-the-agent', 'bob': 'token-of-bob-at-the-agent'}
BOSS = 'token-of-boss-at-the-agent'
MARK = 'mail-access-of'
"""The beginning of each exchanged token."""
EXCHANGE = 'urn:ietf:params:oauth:grant-type:token-exchange'
ACCESS_TOKEN = 'urn:ietf:params:oauth:token-type:access_token'
