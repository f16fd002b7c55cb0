"""The backend in memory: plain data structures and bytes of one process."""
