"""SQLite files: their connections, the threads that use the connections, and the checks of the file.

Transactions of `backends.sql` come in. Results go out after the commit.
"""
