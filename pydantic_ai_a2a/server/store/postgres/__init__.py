"""PostgreSQL databases: their connections, the thread that uses the connections, and what other processes announce.

Transactions of `server.store.sql` come in. Results go out after the commit.
"""
