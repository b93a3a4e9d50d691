"""The table of metrics: names, labels, and that the documentation tells the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kafka_keyshared.observability.web.metric_catalog import FAMILIES
from kafka_keyshared.observability.web.metric_family import MetricFamily
from kafka_keyshared.observability.web.prometheus_collector import (
    BUILD_HELP,
    BUILD_INFO,
    BUILD_LABELS,
)
from tests.support.doctor_survey import instance
from tests.web.labels import ENUMERATED, OF_THE_WORLD

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"


def row(name: str, kind: str, labels: tuple[str, ...], text: str) -> str:
    shown = ", ".join(f"`{label}`" for label in labels) or "–"
    return f"| `{name}` | {kind} | {shown} | {text} |"


def test_no_name_appears_twice_also_without_the_ending_that_openmetrics_takes_off() -> None:
    names = [family.name.removesuffix("_total") for family in FAMILIES]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_name_follows_the_conventions(family: MetricFamily) -> None:
    assert re.fullmatch(r"keyshared(_[a-z0-9]+)+", family.name)
    assert family.name.endswith("_total") == (family.kind == "counter")
    assert family.help.endswith((".", "4,095."))


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_labels_are_bounded_and_partitions_stand_on_gauges_only(family: MetricFamily) -> None:
    enumerated = {label for name, label in ENUMERATED if name == family.name}
    assert enumerated.isdisjoint(OF_THE_WORLD)
    assert set(family.labels) <= OF_THE_WORLD | enumerated
    assert not family.by_partition or family.kind == "gauge"


def test_shards_are_counted_by_what_they_do_and_hot_keys_without_their_names() -> None:
    read = {each.name: each.read for each in FAMILIES}
    shared = {"shards": 33, "ready": 5, "held": 4, "hot": 2}
    told = instance(own={"shared": shared})
    assert [*read["keyshared_shards"](told)] == [(("idle",), 24), (("ready",), 5), (("held",), 4)]
    assert [*read["keyshared_hot_keys"](told)] == [((), 2)]
    owned = instance()
    assert {count for _, count in read["keyshared_shards"](owned)} == {0}
    assert [*read["keyshared_hot_keys"](owned)] == [((), 0)]


def test_the_documentation_lists_every_metric_as_it_is() -> None:
    table = DOCS.read_text("utf-8").partition("## All metrics")[2].partition("\n## ")[0]
    listed = [line for line in table.splitlines() if line.startswith("| `keysh")]
    expected = [row(BUILD_INFO, "gauge", BUILD_LABELS, BUILD_HELP)]
    expected += [row(each.name, each.kind, each.labels, each.help) for each in FAMILIES]
    missing = [line for line in expected if line not in listed]
    stale = [line for line in listed if line not in expected]
    assert not missing, "add to docs/reference/metrics.md:\n" + "\n".join(missing)
    assert not stale, "remove from docs/reference/metrics.md:\n" + "\n".join(stale)


def test_the_documentation_lists_what_the_labels_may_say() -> None:
    listed = re.findall(
        r"^\| `(\w+)` of `(keyshared_\w+)` \| (.+) \|$", DOCS.read_text("utf-8"), re.M
    )
    told = {
        (name, label): tuple(re.findall(r"`([\w-]+)`", values)) for label, name, values in listed
    }
    assert told == ENUMERATED
