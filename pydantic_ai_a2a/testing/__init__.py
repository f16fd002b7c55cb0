"""The kit for testing an agent: see `pydantic_ai_a2a.testing.client`."""
