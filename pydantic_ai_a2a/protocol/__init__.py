"""The wire: what JSON means, in each version of A2A. Pure: knows no HTTP, no storage and no agent.

`operations` is the table of what can be asked, `versions` picks a codec for a request, `codec` is what every codec
offers, and each codec is a module of its own.
"""
