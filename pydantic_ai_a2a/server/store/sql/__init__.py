"""The schema and the statements of all SQL backends, as transactions that a driver executes.

Values of the ports come in. Statements go to the driver one by one; rows come back, and the result goes out.

- A task on its way: `submitting`, `claims`, `checkpoints`, `emitting`, `finishing`, `waiting_tasks`, `canceling`.
  The order of the tasks is in `queue_order`. `task_queue` is the port over them.
- Reads: `task_reads`, `approver_reads`, `event_log`, `conversations`, `task_ranges`. `reader_port` and `event_port` are
  the ports over them.
- Webhooks: `push_configs`, `enqueued_deliveries`, `outbox`. `webhook_ports` has the ports over them.
- What operators and sweeps do: `sweep`, `unanswered_tasks`, `filing`, `totals`, `deletion`, `conversation_deletion`,
  `erasing`, `erasure_marks`, `export_batches`, `dead_letters`, `queue_counts`, `queue_pause`. `housekeeping` is the
  port over them.
- Smaller ports: `quotas`, `credentials`, `hook_calls`, `engine_payloads`. `backend` puts all ports together.
- Other processes on the database: `peers`, `namespaces`.
- The base of all: `schema`, `migrations`, `transaction`, `key_conditions`, `database`, `rehearsal`, and for rows of
  tasks `task_rows`, `joined_items`, `damaged_bodies`.
"""
