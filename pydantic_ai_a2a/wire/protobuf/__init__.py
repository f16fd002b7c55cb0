"""The protobuf of A2A for gRPC: messages as JSON of A2A 1.0, and back."""
