"""SQLite files, and the memory of the process: connections, the threads that use them, and the checks of a file.

Transactions of `server.store.sql` come in. Results go out after the commit.
"""
