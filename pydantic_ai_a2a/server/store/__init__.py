"""The stores of tasks, events, conversations and webhooks: in memory, in a SQLite file, in a PostgreSQL database.

Calls of the ports come in. Stored rows and published events go out. `pydantic_ai_a2a.store` has the public names.

`ports` has the contract, `sql` the transactions of all databases, and `sqlite` and `postgres` execute them. The modules
beside these folders are for several of them: what processes share (`shared_backend`), what a process remembers
(`event_bus`, `history_cache`), and the forms of stored values.
"""
