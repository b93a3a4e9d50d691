"""OpenTelemetry spans for handler calls, by the semantic conventions for messaging.

A span begins when the handler is called, not when the record was fetched. The time a record has
waited is an attribute. The span is a root span with a link to the producer's context from the
record's headers. The reason: a record that is handled twice, or a batch, has no single parent.

This module is imported only for an app that is made with ``tracing``; it needs the extra of that
name. It uses the OpenTelemetry API alone. The program chooses the SDK, if any.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from opentelemetry import context, propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
from opentelemetry.util.types import AttributeValue

from kafka_keyshared.executors.handling.failure import TRACE, text_of
from kafka_keyshared.executors.handling.handlers import Made
from kafka_keyshared.executors.handling.outputs import Take, outputs_in
from kafka_keyshared.executors.handling.queue_wait import QueueWaits, Wait
from kafka_keyshared.headers import HeadersError, read_headers
from kafka_keyshared.model import Ack, DeadLetter, Drop, Output, Record, Retry, Verdict

SCOPE = "kafka_keyshared"

OPERATION: Mapping[str, AttributeValue] = {
    "messaging.system": "kafka",
    "messaging.operation.name": "process",
    "messaging.operation.type": "process",
}


@dataclass(frozen=True)
class Tracing:
    """Settings that all spans of an app share.

    ``worker`` returns the name of the calling worker. ``waits`` is None if waits are not known, as
    in a worker process.
    """

    group: str
    client_id: str
    pool: str
    worker: Callable[[], str]
    batches: bool = False
    waits: QueueWaits | None = None


@dataclass(frozen=True)
class TracedMaking:
    """Makes a worker's handler and wraps each of its calls in a span."""

    make: Callable[[], Made]
    tracing: Tracing

    @property
    def handler(self) -> Any:
        """Return the original handler; a worker process finds the handler's module by it."""
        return getattr(self.make, "handler", self.make)

    def __call__(self) -> Made:
        """Return the handler with a span around each call."""
        made, spans = self.make(), Spans(self.tracing)
        if self.tracing.batches:
            return made._replace(handle=spans.of_batches(made.handle))
        if self.tracing.pool == "asyncio":
            return made._replace(handle=spans.of_coroutines(made.handle))
        return made._replace(handle=spans.of_calls(made.handle))


class Spans:
    """Makes the spans of one worker's calls."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing
        self._tracer = trace.get_tracer(SCOPE)
        self._same: dict[str, AttributeValue] = {
            **OPERATION,
            "messaging.consumer.group.name": tracing.group,
        }
        if tracing.client_id:
            self._same["messaging.client.id"] = tracing.client_id

    def of_calls(self, handle: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return the handler call with a span around it."""

        def call(record: Any) -> Any:
            with self._span(record) as span:
                return told(span, handle(record))

        return call

    def of_coroutines(self, handle: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return the call of a coroutine function, or of a wrapper of one, in a span."""

        async def call(record: Any) -> Any:
            with self._span(record) as span:
                result = handle(record)
                return told(span, await result if inspect.isawaitable(result) else result)

        return call

    def of_batches(self, handle: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return the call of a batch handler in one span that has a link for each record."""

        def call(records: Sequence[Any]) -> Any:
            with self._span(*records) as span:
                result = handle(records)
                if not isinstance(result, list | tuple):
                    return told(span, result)
                for each in result:
                    if isinstance(each, BaseException):  # counts as raised
                        fail(span, each)
                return result

        return call

    @contextmanager
    def _span(self, *records: Record) -> Iterator[Span]:
        """Run a call in its own span, and record the error that it raises."""
        waits = self._tracing.waits
        began = [] if waits is None else [waits.begins(each) for each in records]
        producers = [_producer(each) for each in records]
        found = [trace.get_current_span(each).get_span_context() for each in producers]
        attributes = {**self._same, **self._about(records), **_waited(began)}
        # The producer's baggage is passed on. Its span becomes a link, not the parent.
        around = Context() if self._tracing.batches else producers[0]
        around = trace.set_span_in_context(trace.INVALID_SPAN, around)
        topic = attributes.get("messaging.destination.name")
        span = self._tracer.start_span(
            "process" if topic is None else f"process {topic}",
            context=around,
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            links=[Link(each) for each in found if each.is_valid],
        )
        token = context.attach(trace.set_span_in_context(span, around))
        closed = False
        try:
            yield span
        except GeneratorExit:
            # The loop has ended. The remaining generators are closed in another context.
            closed = True
            raise
        except BaseException as error:
            fail(span, error)
            raise
        finally:
            if not closed:
                context.detach(token)
            span.end()
            if waits is not None:
                for each in began:
                    waits.ends(each.lane)

    def _about(self, records: Sequence[Record]) -> dict[str, AttributeValue]:
        about: dict[str, AttributeValue] = {"keyshared.worker": self._tracing.worker()}
        topics = {each.topic() for each in records}
        partitions = {each.partition() for each in records}
        if len(topics) == 1:
            about["messaging.destination.name"] = topics.pop()
            if len(partitions) == 1:
                about["messaging.destination.partition.id"] = str(partitions.pop())
        if self._tracing.batches:
            about["messaging.batch.message_count"] = len(records)
        else:
            about["messaging.kafka.offset"] = records[0].offset()
            if records[0].value() is None:
                about["messaging.kafka.message.tombstone"] = True
        return about


def _waited(began: Sequence[Wait]) -> dict[str, AttributeValue]:
    """Return the longest waits among the records of a call, as far as they are known."""
    longest = {
        "keyshared.queue_wait": [each.queued for each in began if each.queued is not None],
        "keyshared.blocked_by_key": [
            each.behind_key for each in began if each.behind_key is not None
        ],
    }
    return {name: max(seconds) for name, seconds in longest.items() if seconds}


def _producer(record: Record) -> Context:
    """Return the context in a record's headers, an empty one if it cannot be read."""
    try:
        headers = read_headers(record)
    except HeadersError:
        return Context()
    carrier = {
        name: value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        for name, value in headers
        if value is not None
    }
    return propagate.extract(carrier, Context())


def told(span: Span, result: Any) -> Any:
    """Record the result of a call and return it; outputs get the span's context."""
    if isinstance(result, type) and issubclass(result, Verdict):
        result = result()
    if isinstance(result, Verdict):
        fail(span, result)
    elif outputs := outputs_in(result):
        return with_context(outputs)
    return result


def fail(span: Span, error: BaseException) -> None:
    """Record a verdict or an error that a call has raised or returned.

    The ``traceparent`` of the span is stored on the error, so that a dead letter can name it.
    """
    if isinstance(error, Ack):
        return
    if isinstance(error, Drop):
        span.set_attribute("keyshared.verdict", "drop")
        return
    kind = type(error).__qualname__
    if isinstance(error, Retry):
        span.set_attribute("keyshared.verdict", "retry")
    elif isinstance(error, DeadLetter):
        span.set_attributes({"keyshared.verdict": "dead_letter", "error.type": kind})
        span.set_status(Status(StatusCode.ERROR, text_of(error)))
    else:
        span.set_attribute("error.type", kind)
        span.record_exception(error)
        span.set_status(Status(StatusCode.ERROR, f"{kind}: {text_of(error)}"))
    at = span.get_span_context()
    if at.is_valid:
        error.__dict__[TRACE] = (
            f"00-{trace.format_trace_id(at.trace_id)}-{trace.format_span_id(at.span_id)}"
            f"-{at.trace_flags:02x}"
        )


def with_context(outputs: Sequence[Output]) -> list[Output]:
    """Return outputs with the current trace context in their headers."""
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return [
        replace(
            each,
            headers=[
                *each.headers,
                *(pair for pair in carrier.items() if pair[0] not in dict(each.headers)),
            ],
        )
        for each in outputs
    ]


def taking(take: Take) -> Take:
    """Return a wrapper of ``take`` that adds the current trace context to outputs."""

    def take_with_context(record: Record, outputs: Sequence[Output]) -> None:
        take(record, with_context(outputs))

    return take_with_context
