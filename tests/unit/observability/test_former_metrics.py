"""Former names of metrics in the rules of a user: each is found, with its successor."""

from __future__ import annotations

import re

import pytest

from kafka_keyshared.observability.former_metrics import (
    FORMER_LABELS,
    FORMER_METRICS,
    FormerName,
    former_names,
)
from kafka_keyshared.observability.web.metric_catalog import FAMILIES
from tests.tidy.sources import ROOT

SERVED = {family.name for family in FAMILIES}


@pytest.mark.parametrize(("former", "successor"), FORMER_METRICS.items())
def test_a_rule_with_a_former_name_is_told_the_successor(former: str, successor: str) -> None:
    text = f"groups:\n  - expr: sum by (job) ({former}) > 0\n"
    assert list(former_names(text)) == [FormerName(2, former, successor)]


@pytest.mark.parametrize(("former", "successor"), FORMER_METRICS.items())
def test_a_former_name_is_no_longer_served_and_its_successor_is(
    former: str, successor: str
) -> None:
    assert former not in SERVED
    assert successor.partition("{")[0] in SERVED


def test_a_failed_dead_letter_is_no_failed_attempt() -> None:
    found = list(former_names('increase(keyshared_dlq_records_total{outcome="failed"}[10m])'))
    assert [each.successor for each in found] == ["keyshared_dlq_writes_total", 'result="failed"']


def test_the_page_has_the_whole_table() -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text("utf-8")
    listed = re.findall(r"^\| `(.+?)` \| `(.+?)` \|$", page.partition("## Former names")[2], re.M)
    labels = {f'{label}="{value}"': now for (label, value), now in FORMER_LABELS.items()}
    assert dict(listed) == {**FORMER_METRICS, **labels}


@pytest.mark.parametrize("ending", ["_bucket", "_sum", "_count"])
def test_the_series_of_a_histogram_are_found_too(ending: str) -> None:
    (found,) = former_names(f"rate(keyshared_rebalance_drain_seconds{ending}[5m])")
    assert found.successor == f"keyshared_revoke_duration_seconds{ending}"


@pytest.mark.parametrize(("label", "value"), FORMER_LABELS)
@pytest.mark.parametrize("query", ['{{{0}="{1}"}}', '{{{0}=~"ok|{1}"}}', '{{{0}=\\"{1}\\"}}'])
def test_a_former_value_of_a_label_is_found_also_in_json(
    label: str, value: str, query: str
) -> None:
    found = list(former_names("keyshared_records_processed_total" + query.format(label, value)))
    assert found == [FormerName(1, f'{label}="{value}"', FORMER_LABELS[label, value])]
