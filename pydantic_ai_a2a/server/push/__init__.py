"""Webhooks: their registration, the addresses that may be called, the calls, and their repetition.

Stored deliveries come in. HTTP requests to webhooks go out.
"""
