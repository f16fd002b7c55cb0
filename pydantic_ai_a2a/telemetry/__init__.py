"""Spans and metrics, through the API of OpenTelemetry: ids, names and numbers go in, records for an SDK come out."""
