"""The spans of this process, kept by OpenTelemetry's own SDK."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

PRODUCER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
"""A ``traceparent`` as a producer puts it into a record's headers."""


@cache
def _exporter() -> InMemorySpanExporter:
    """What every span of this process goes to: a program sets one provider, once."""
    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


class Kept:
    """The spans that have ended since it was made."""

    def __init__(self) -> None:
        _exporter().clear()

    def all(self) -> list[ReadableSpan]:
        """All of them, in the order in which they ended."""
        return list(_exporter().get_finished_spans())

    def of_calls(self) -> list[ReadableSpan]:
        """Those of calls of a handler."""
        return [each for each in self.all() if each.kind is trace.SpanKind.CONSUMER]


@contextmanager
def kept() -> Iterator[Kept]:
    """Keep the spans of a test, and leave none behind."""
    spans = Kept()
    yield spans
    _exporter().clear()


def traceparent(span: ReadableSpan) -> str:
    """How a span is named in a header."""
    at = span.get_span_context()
    assert at is not None
    return f"00-{at.trace_id:032x}-{at.span_id:016x}-{at.trace_flags:02x}"
