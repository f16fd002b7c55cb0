"""The operations of A2A: one method for each operation, with its access rules.

A caller and decoded params come in. Tasks, pages, event streams and errors go out.
"""
