"""The stores of tasks, events, conversations and webhooks: in memory, in a SQLite file, in a PostgreSQL database.

Calls of the ports come in. Stored rows and published events go out.
"""

from __future__ import annotations
