"""Stored databases of each schema version, as SQL text, and the test that opens copies of them."""
