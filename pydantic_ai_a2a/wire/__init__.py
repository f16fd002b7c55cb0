"""What the server and the client share of A2A: its JSON, what the JSON means, and signatures.

Bytes and JSON of others come in, and values go out; and the other way round. `protocol` has the versions of A2A.
"""
