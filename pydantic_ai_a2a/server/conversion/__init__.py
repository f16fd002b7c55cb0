"""Translations between A2A parts and Pydantic AI's prompts, results, events and deferred calls; and checks of messages.

Messages of clients and values of runs come in. Prompts, parts, artifacts and stored pending calls go out.
"""
