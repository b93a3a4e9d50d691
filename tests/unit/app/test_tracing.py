"""Spans of a handler's calls: what they say, in every kind of pool, and that none costs nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import baggage, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    SpanExporter,
    SpanExportResult,
)
from opentelemetry.trace import StatusCode

from kafka_keyshared import Ack, DeadLetter, Drop, Output, Retry
from kafka_keyshared.app.keyshared import CLOCK, KeyShared
from kafka_keyshared.cli.run import hand_out
from kafka_keyshared.clock import Clock
from kafka_keyshared.config import option_checks
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.executors.handling.failure import describe
from kafka_keyshared.model import Record
from tests.support.handler_pipe import PLACE, tell
from tests.support.offline_instance import CONF, OfflineBroker
from tests.support.records import P0, FakeRecord
from tests.support.spans import PRODUCER, Kept, kept, traceparent

TRACER = trace.get_tracer("the user's own")


@pytest.fixture
def spans() -> Iterator[Kept]:
    with kept() as found:
        yield found


def an_app(broker: OfflineBroker, workers: int | str = 2, **options: Any) -> KeyShared:
    options = {"tracing": True, **options}
    return KeyShared(CONF, ["orders"], workers=workers, hooks=broker.hooks, **options)


def a_record(offset: int, key: str = "a", headers: Any = (("traceparent", PRODUCER),)) -> Any:
    return FakeRecord(P0, offset, key.encode(), headers=[(name, v.encode()) for name, v in headers])


def run(broker: OfflineBroker, app: KeyShared, at: int) -> None:
    """Run the app until so much is committed."""

    def stepped(_view: object) -> None:
        if at in broker.positions():
            app.stop()

    app.hooks = replace(app.hooks, stepped=stepped)
    assert app.run() == 0


def of(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def by_offset(spans: Kept) -> dict[Any, ReadableSpan]:
    return {of(each)["messaging.kafka.offset"]: each for each in spans.of_calls()}


def nested(record: Any) -> None:
    with TRACER.start_as_current_span(f"pay {record.offset()}"):
        assert baggage.get_baggage("tenant") == "acme"


async def nested_async(record: Any) -> None:
    nested(record)


# --- what a span says ---

WITH_BAGGAGE = (("traceparent", PRODUCER), ("baggage", "tenant=acme"))


@pytest.mark.parametrize(
    ("workers", "handler"), [(2, nested), ("asyncio:10", nested_async)], ids=["thread", "asyncio"]
)
def test_each_call_is_a_span_linked_to_the_producer_and_around_the_users_own(
    spans: Kept, workers: Any, handler: Any
) -> None:
    broker = OfflineBroker(*(a_record(each, f"k{each}", WITH_BAGGAGE) for each in range(4)))
    app = an_app(broker, workers)
    app.handler(handler)
    run(broker, app, 4)

    calls, own = by_offset(spans), {each.name: each for each in spans.all()}
    assert sorted(calls) == [0, 1, 2, 3]
    for offset, span in calls.items():
        assert (span.name, span.parent, span.status.status_code) == (
            "process orders",
            None,
            StatusCode.UNSET,
        )
        (link,) = span.links
        assert f"00-{link.context.trace_id:032x}-{link.context.span_id:016x}-01" == PRODUCER
        said = of(span)
        assert said.pop("keyshared.worker").startswith("worker-")
        assert 0 <= said.pop("keyshared.blocked_by_key") <= said.pop("keyshared.queue_wait") < 60
        assert said == {
            "messaging.system": "kafka",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.name": "orders",
            "messaging.destination.partition.id": "0",
            "messaging.consumer.group.name": "billing",
            "messaging.kafka.offset": offset,
        }
        inner = own[f"pay {offset}"]
        assert inner.parent == span.get_span_context()


@pytest.mark.parametrize(
    "headers", [(), (("traceparent", "nonsense"),), (("traceparent", "\udcff"),)], ids=repr
)
def test_a_record_without_a_context_is_a_span_without_a_link(spans: Kept, headers: Any) -> None:
    encoded = [(name, value.encode("utf-8", "surrogateescape")) for name, value in headers]
    broker = OfflineBroker(FakeRecord(P0, 0, b"a", headers=encoded or None))
    app = an_app(broker)
    app.handler(lambda _: None)
    run(broker, app, 1)
    (span,) = spans.of_calls()
    assert list(span.links) == []


def test_a_span_says_how_a_call_ended(spans: Kept) -> None:
    endings: list[Any] = [
        *(None, Ack, Drop("no"), Retry(after=0), Retry, ValueError("bad")),
    ]
    broker = OfflineBroker(*(a_record(each, f"k{each}") for each in range(len(endings))))
    app = an_app(broker, retry={"backoff": 0}, on_exhausted="drop")
    first: set[int] = set()

    @app.handler
    def handle(record: Any) -> Any:
        if record.offset() in first:
            return None
        first.add(record.offset())
        ending = endings[record.offset()]
        if isinstance(ending, ValueError):
            raise ending
        return ending

    run(broker, app, len(endings))
    found: dict[int, ReadableSpan] = {}
    for span in spans.of_calls():
        found.setdefault(of(span)["messaging.kafka.offset"], span)
    verdicts = [of(found[each]).get("keyshared.verdict") for each in range(len(endings))]
    assert verdicts == [None, None, "drop", "retry", "retry", None]
    errors = [of(found[each]).get("error.type") for each in range(len(endings))]
    assert errors == [None] * 5 + ["ValueError"]
    statuses = [found[each].status.status_code.name for each in range(len(endings))]
    assert statuses == ["UNSET"] * 5 + ["ERROR"]
    (event,) = found[5].events
    assert event.name == "exception"
    assert dict(event.attributes or {})["exception.message"] == "bad"


@pytest.mark.parametrize(
    ("ending", "raised"),
    [(DeadLetter("gone"), True), (DeadLetter("gone"), False), (ValueError("bad"), True)],
    ids=repr,
)
def test_a_failure_keeps_its_span_for_the_dead_letter(
    spans: Kept, ending: Exception, raised: bool
) -> None:
    def handle(_record: Any) -> Any:
        if raised:
            raise ending
        return ending

    app = an_app(OfflineBroker())
    app.handler(handle)
    call = app.worker_specs()[0].make().handle
    try:
        answer = call(a_record(0))
    except (DeadLetter, ValueError) as error:
        answer = error
    (span,) = spans.of_calls()
    assert span.status.status_code is StatusCode.ERROR
    assert of(span)["error.type"] == type(ending).__name__
    assert describe(answer, Clock()).trace == traceparent(span)
    assert describe(ValueError("another"), Clock()).trace == ""


def test_what_a_record_waits_behind_its_key_is_told_apart_from_its_whole_wait(spans: Kept) -> None:
    broker = OfflineBroker(a_record(0, "slow"), a_record(1, "slow"), a_record(2, "quick"))
    app = an_app(broker, workers=3, detach_after=0)
    goes_on = threading.Event()
    took: dict[int, float] = {}

    @app.handler
    def handle(record: Any) -> None:
        began = CLOCK()
        if record.offset() == 2:
            goes_on.set()
        assert goes_on.wait(60)
        took[record.offset()] = CLOCK() - began

    run(broker, app, 3)
    said = {offset: of(span) for offset, span in by_offset(spans).items()}
    assert said[1]["keyshared.queue_wait"] >= said[1]["keyshared.blocked_by_key"] >= took[0] > 0
    assert said[0]["keyshared.blocked_by_key"] == said[2]["keyshared.blocked_by_key"] == 0


def test_a_batch_is_one_span_with_a_link_to_each_record(spans: Kept) -> None:
    links = [f"00-0af7651916cd43dd8448eb211c80319c-{each:016x}-01" for each in range(1, 5)]
    broker = OfflineBroker(
        *(a_record(each, f"k{each}", [("traceparent", link)]) for each, link in enumerate(links))
    )
    app = an_app(broker, workers=1, retry={"attempts": 1}, on_exhausted="drop")

    @app.batch_handler(size=4, wait=60)
    def handle(records: Sequence[Any]) -> Any:
        assert len(records) == 4
        return [None, Drop(), ValueError("bad"), None]

    run(broker, app, 4)
    (span,) = spans.of_calls()
    assert [f"{each.context.span_id:016x}" for each in span.links] == [
        f"{each:016x}" for each in range(1, 5)
    ]
    said = of(span)
    assert said["messaging.batch.message_count"] == 4
    assert "messaging.kafka.offset" not in said
    assert (span.status.status_code, said["error.type"]) == (StatusCode.ERROR, "ValueError")
    assert said["keyshared.queue_wait"] >= 0


def test_an_output_carries_the_span_of_the_call_that_made_it(spans: Kept) -> None:
    written: list[Output] = []

    def take(_record: Record, outputs: Sequence[Output]) -> None:
        written.extend(outputs)

    broker = OfflineBroker(a_record(0), a_record(1))
    app = an_app(broker)

    def handle(record: Any) -> Any:
        own = [("traceparent", "mine")] if record.offset() else []
        return Output("paid", headers=[("kind", "receipt"), *own])

    app.handler(handle)
    hand_out(app, handle, take)
    run(broker, app, 2)
    calls = by_offset(spans)
    assert [dict(each.headers) for each in written] == [
        {"kind": b"receipt", "traceparent": traceparent(calls[0]).encode()},
        {"kind": b"receipt", "traceparent": b"mine"},
    ]


# --- in processes ---


class ToFile(SpanExporter):
    """Writes spans where the test reads them."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        for each in spans:
            tell(json.dumps([os.getpid(), each.name, of(each), traceparent(each)]))
        return SpanExportResult.SUCCESS


def in_a_process(record: Any) -> Any:
    """Handle a record where nobody has set anything up before."""
    if not isinstance(trace.get_tracer_provider(), TracerProvider):
        provider = TracerProvider()
        # Sent in batches, so that nothing is there unless the process ends in order.
        provider.add_span_processor(BatchSpanProcessor(ToFile(), schedule_delay_millis=600_000))
        trace.set_tracer_provider(provider)
    if record.offset() == 2:
        return Output("paid")
    if record.offset() == 3:
        raise ValueError("bad")
    return None


def test_in_a_process_the_span_is_made_where_the_handler_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tmp_path / "told"
    told.touch()
    monkeypatch.setenv(PLACE, str(told))
    written: list[Output] = []
    # The first makes the provider, within its own span, which so is none.
    broker = OfflineBroker(*(a_record(each) for each in range(4)))
    app = an_app(broker, "process:1", retry={"attempts": 1}, on_exhausted="drop")
    app.handler(in_a_process)
    hand_out(app, in_a_process, lambda _, outputs: written.extend(outputs))
    run(broker, app, 4)
    lines = [json.loads(each) for each in told.read_text().splitlines()]
    found = {said["messaging.kafka.offset"]: (pid, name, said, at) for pid, name, said, at in lines}
    assert sorted(found) == [1, 2, 3]
    pid, name, said, _ = found[1]
    assert pid != os.getpid()
    assert (name, said["keyshared.worker"]) == ("process orders", "worker-0")
    assert "keyshared.queue_wait" not in said
    assert [dict(each.headers) for each in written] == [{"traceparent": found[2][3].encode()}]
    assert found[3][2]["error.type"] == "ValueError"


# --- when it is off, or cannot be ---


def test_without_it_the_workers_call_the_handler_itself() -> None:
    def handle(_record: Any) -> None: ...

    app = an_app(OfflineBroker(), tracing=False)
    app.handler(handle)
    assert [spec.make().handle for spec in app.worker_specs()] == [handle, handle]
    assert app.waits is None
    with_it = an_app(OfflineBroker())
    with_it.handler(handle)
    assert all(spec.make().handle is not handle for spec in with_it.worker_specs())


def test_without_it_nothing_of_opentelemetry_is_imported() -> None:
    program = (
        "import sys\n"
        "from kafka_keyshared import KeyShared\n"
        "app = KeyShared({'bootstrap.servers': 'x:1', 'group.id': 'g'}, ['t'], tracing=TRACING)\n"
        "app.handler(print)\n"
        "app.worker_specs()\n"
        "print(any(name.startswith('opentelemetry') for name in sys.modules))\n"
    )

    def imported(tracing: str) -> str:
        text = program.replace("TRACING", tracing)
        done = subprocess.run(
            [sys.executable, "-c", text], capture_output=True, text=True, check=True, timeout=60
        )
        return done.stdout.strip()

    assert (imported("False"), imported("True")) == ("False", "True")


def test_where_the_extra_is_missing_it_is_refused_with_what_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: Callable[[str], None] = lambda name: None  # noqa: E731
    monkeypatch.setattr(option_checks, "find_spec", found)
    with pytest.raises(ConfigError, match=r'pip install "kafka-keyshared\[tracing\]"'):
        an_app(OfflineBroker())
    assert an_app(OfflineBroker(), tracing=False).options.tracing is False


def test_members_that_ask_for_records_have_no_calls_to_trace() -> None:
    with pytest.raises(ConfigError, match="tracing=True and workers='pull'"):
        an_app(OfflineBroker(), "pull")
