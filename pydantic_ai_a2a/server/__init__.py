"""The server: serves an agent over A2A. Its rooms use the wire and the leaves of the package, never the client."""
