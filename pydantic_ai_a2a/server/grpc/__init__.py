"""The gRPC binding (§10): serves the operations of the table over HTTP/2, as protobuf messages.

Calls come in. Protobuf messages go out, or a status with details. The JSON of A2A 1.0 is the form in between.
"""
