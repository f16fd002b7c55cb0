"""The extensions of A2A that this package defines, and the calls of agents that wait for answers.

Declarations for agent cards go out, and the data of extensions in metadata and parts goes out and comes in.
"""
