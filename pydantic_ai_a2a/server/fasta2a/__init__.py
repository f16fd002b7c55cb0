"""FastA2A parts of a user: a storage, a broker and a worker, and `AgentWorker` for an app of FastA2A.

Objects with the interfaces of FastA2A come in. Backends and jobs of this package go out.
"""
