"""Authentication and authorization: who calls, in which tenant, and with which scopes.

Headers, a peer address and the settings of the app come in. A `Caller` goes out, or an error with HTTP 401, 403 or 421.
"""
