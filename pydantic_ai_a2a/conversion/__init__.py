"""A2A parts to and from Pydantic AI's prompts, results and events. Pure; knows neither HTTP nor storage.

`inbound`: a message becomes a user prompt. `outbound`: a result becomes artifacts, and `modes`: such as its client
takes. `stream`: a run's events become text deltas and notes, and `progress`: steps. `media`: what a file's bytes are.
"""
