"""The operations of A2A: the flow of a request over every transport, and one method for each operation.

A caller and decoded params come in. Tasks, pages, event streams and errors go out.
"""
