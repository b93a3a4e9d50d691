"""Alerts and dashboard of the chart are those of its files, word for word, where wanted."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from tests.helm.chart import CHART, RefusedError, Values, case, minimal, one, render

GROUPS = yaml.safe_load((CHART / "alerts.yaml").read_text("utf-8"))["groups"]
DASHBOARD = (CHART / "dashboard.json").read_text("utf-8")


def rules(**settings: Any) -> list[dict[str, Any]]:
    """The rules of the release's PrometheusRule."""
    made = one(render(minimal(prometheusRule={"enabled": True, **settings})), "PrometheusRule")
    (group,) = made["spec"]["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def test_neither_is_made_unasked() -> None:
    kinds = [each["kind"] for each in render(minimal())]
    assert "PrometheusRule" not in kinds
    assert not any(each["metadata"]["name"].endswith("-dashboard") for each in render(minimal()))


def test_the_rules_are_those_of_the_file() -> None:
    made = one(render(minimal(prometheusRule={"enabled": True})), "PrometheusRule")
    assert made["spec"]["groups"] == GROUPS


def test_the_operator_finds_them_by_their_label_and_people_by_theirs() -> None:
    made = one(render(case("full")), "PrometheusRule")
    assert made["metadata"]["labels"]["release"] == "prometheus"
    labels = [each["labels"] for each in made["spec"]["groups"][0]["rules"]]
    assert {each["team"] for each in labels} == {"billing"}
    assert {each["severity"] for each in labels} == {"page", "ticket"}


def test_a_label_of_an_alert_may_be_another() -> None:
    assert {each["labels"]["severity"] for each in rules(alertLabels={"severity": "info"})} == {
        "info"
    }


def test_an_alert_may_be_left_out_and_a_mistyped_one_is_told() -> None:
    names = [each["alert"] for each in rules(leaveOut=["KeysharedGone"])]
    assert names == [
        each["alert"] for each in GROUPS[0]["rules"] if each["alert"] != "KeysharedGone"
    ]
    with pytest.raises(RefusedError, match="leaveOut"):
        rules(leaveOut=["KeysharedGnoe"])


def test_what_may_be_left_out_are_the_alerts_that_there_are() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text("utf-8"))
    named = schema["properties"]["prometheusRule"]["properties"]["leaveOut"]["items"]["enum"]
    assert named == [each["alert"] for each in GROUPS[0]["rules"]]


def test_each_alert_leads_to_its_own_place_in_the_runbook() -> None:
    base = "https://wiki.example/runbook/"
    for each in rules(runbookUrl=base):
        assert each["annotations"]["runbook_url"] == f"{base}#{each['alert'].lower()}"
    assert not any("runbook_url" in each["annotations"] for each in rules())


@pytest.mark.parametrize("address", ["runbook", "https://wiki.example/#here", "file:///etc"])
def test_what_is_no_address_of_a_page_is_refused(address: str) -> None:
    with pytest.raises(RefusedError, match="runbookUrl"):
        rules(runbookUrl=address)


@pytest.mark.parametrize(
    "values", [minimal(dashboard={"enabled": True}), case("full")], ids=["minimal", "full"]
)
def test_the_dashboard_is_the_files_and_grafana_finds_it(values: Values) -> None:
    made = one(render(values), "ConfigMap", "-dashboard")
    assert made["data"] == {"kafka-keyshared.json": DASHBOARD}
    assert made["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert made["metadata"].get("annotations", {}) in ({}, {"grafana_folder": "Kafka"})


def test_the_dashboard_fits_in_a_config_map() -> None:
    assert len(DASHBOARD.encode()) < 1_000_000 / 4
