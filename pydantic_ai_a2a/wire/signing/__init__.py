"""JSON Web Signatures: keys, the signed form of agent cards, signed tokens, and the check of both.

Keys and JSON of users and remote agents come in. Signatures and verified JSON go out.
"""
