"""JSON Schemas: checks of schemas of other parties, and of values by them.

Schemas and values of others come in. Usable schemas go out, or the first problem and its place.
"""
