"""Tasks from the queue to their end: claims, leases, order, cancelling, recording, hand-over and draining.

Queued tasks come in. Stored events and ended tasks go out.
"""
