"""How often the metrics are written, and how old a text may be."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from kafka_keyshared.observability.web.prometheus_collector import (
    FORMATS_MOST,
    SERVED_FOR,
    Exposition,
)
from kafka_keyshared.status import Status
from tests.support.doctor_survey import instance, partition
from tests.support.http_scrapes import OPEN_METRICS, samples


def statuses() -> Iterator[Status]:
    """Statuses of a rebalance that goes on: each is another one."""
    return (instance(partitions=[partition(0, lag)]) for lag in itertools.count())


def lag_in(text: bytes) -> float:
    return samples(text.decode())["keyshared_lag_records", ("0", "orders")]


def test_two_scrapes_in_a_rebalance_are_written_once_and_a_later_one_anew() -> None:
    told, now = statuses(), 0.0
    exposition = Exposition(lambda: next(told), clock=lambda: now)
    first = exposition.text("")[0]
    now = SERVED_FOR / 2
    assert exposition.text("")[0] is first
    now = SERVED_FOR
    later = exposition.text("")[0]
    assert lag_in(first) == 0
    assert lag_in(later) == 2, "none is older than that"
    now = SERVED_FOR * 1.5
    assert exposition.text("")[0] is later, "it counts from the text that is served"


def test_each_format_has_a_text_of_its_own_within_the_bound() -> None:
    told = statuses()
    exposition = Exposition(lambda: next(told), clock=lambda: 5.0)
    plain, plainly = exposition.text("text/plain")
    opened, openly = exposition.text(OPEN_METRICS)
    assert plainly.startswith("text/plain")
    assert openly.startswith("application/openmetrics-text")
    assert not plain.endswith(b"# EOF\n")
    assert opened.endswith(b"# EOF\n")
    assert exposition.text("text/plain") == (plain, plainly)
    assert exposition.text(OPEN_METRICS) == (opened, openly)


def test_whoever_names_ever_new_versions_fills_no_memory() -> None:
    same = instance()
    exposition = Exposition(lambda: same)
    first = exposition.text(OPEN_METRICS)[0]
    assert exposition.text(OPEN_METRICS)[0] is first
    for number in range(FORMATS_MOST):
        asked_for = f"application/openmetrics-text;version=1.0.{number + 1}"
        assert exposition.text(asked_for)[1].startswith("application/openmetrics-text")
    assert exposition.text(OPEN_METRICS)[0] is not first, "the oldest made room"
