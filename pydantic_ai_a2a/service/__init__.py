"""The operations of A2A: one method for each, what it means, and who may see what.

A caller and decoded params come in. Tasks, pages, event streams and errors go out.
"""
