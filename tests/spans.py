"""The spans that are ended while a test runs, and the trace of a caller."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext

TRACE, CALLER = '0123456789abcdef0123456789abcdef', '0123456789abcdef'
TRACEPARENT = f'00-{TRACE}-{CALLER}-01'
OTHER_TRACE = 'f' * 32
OTHER_TRACEPARENT = f'00-{OTHER_TRACE}-{CALLER}-01'


class Spans:
    """The spans that were ended while the test runs."""

    def __init__(self, provider: TracerProvider) -> None:
        self.tracer = provider.get_tracer('test')
        self._exporter = InMemorySpanExporter()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def all(self) -> list[ReadableSpan]:
        return sorted(self._exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    def clear(self) -> None:
        self._exporter.clear()

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        [span] = self.named(name)
        return span


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    # OpenTelemetry's own function sets the provider of a process once and for all tests that follow.
    provider = TracerProvider()
    monkeypatch.setattr(trace, '_TRACER_PROVIDER', provider)
    yield Spans(provider)
    provider.shutdown()


def context_of(span: ReadableSpan) -> SpanContext:
    context = span.get_span_context()
    assert context is not None
    return context


def trace_of(span: ReadableSpan) -> str:
    return f'{context_of(span).trace_id:032x}'


def is_child(span: ReadableSpan, parent: ReadableSpan) -> bool:
    return span.parent is not None and span.parent.span_id == context_of(parent).span_id
