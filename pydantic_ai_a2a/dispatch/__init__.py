"""The one way of every request to its operation, whatever transport carried the request.

A caller, an operation and params come in. The operation's answer or an event stream goes out, or a typed error.
"""
