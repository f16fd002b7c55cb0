"""What the server and the client share of A2A: its JSON, its meaning, and signatures. Uses only the leaves."""
