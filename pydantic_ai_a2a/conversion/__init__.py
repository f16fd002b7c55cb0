"""Translations between A2A parts and Pydantic AI's prompts, results, events and deferred calls.

Messages of clients and values of runs come in. Prompts, parts, artifacts and stored pending calls go out.
"""
