"""The dashboard: every panel says what it shows, every query asks for what is served."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from kafka_keyshared.observability.former_metrics import former_names
from tests.setup.dashboard import FILE, INTERVAL, SELECTED, written
from tests.web.queries import BY_NAME, family_of, promtool, selectors, strangers

BOARD: dict[str, Any] = json.loads(FILE.read_text("utf-8"))
ROWS = [each for each in BOARD["panels"] if each["type"] == "row"]
PANELS = [each for each in BOARD["panels"] if each["type"] != "row"]
UNITS = {"none", "s", "cps", "percentunit", "bytes"}
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def queries(panel: dict[str, Any]) -> list[str]:
    """The queries of a panel, without what chooses the instances."""
    return [
        target["expr"].replace(f"{{{SELECTED}}}", "").replace(f"{SELECTED},", "")
        for target in panel["targets"]
    ]


EVERY_QUERY = [query for panel in PANELS for query in queries(panel)]


def test_the_file_is_what_its_declarations_say() -> None:
    again = "write it again: python tests/setup/dashboard.py"
    assert FILE.read_text("utf-8") == written(), again


@pytest.mark.parametrize("file", [FILE, FILE.with_name("alerts.yaml")], ids=lambda file: file.name)
def test_the_files_of_the_chart_have_no_former_name_of_a_metric(file: Path) -> None:
    text = file.read_text("utf-8")
    assert "keyshared_diagnosis" in text
    assert list(former_names(text)) == []


def test_links_to_it_stay_and_whoever_imports_it_chooses_the_prometheus() -> None:
    assert BOARD["uid"] == "kafka-keyshared"
    variables = {each["name"]: each for each in BOARD["templating"]["list"]}
    assert list(variables) == ["datasource", "namespace", "job", "group", "instance"]
    assert variables["datasource"]["type"] == "datasource"
    assert all(each["datasource"] == SOURCE for each in (*PANELS, *list(variables.values())[1:]))
    assert all(target["datasource"] == SOURCE for each in PANELS for target in each["targets"])


def test_it_has_its_rows_and_no_row_is_empty() -> None:
    first_words = [each["title"].split()[0] for each in ROWS]
    assert first_words == ["Verdict", "Flow", "Order", "Ring", "Workers", "Failures", "Client"]
    kinds = [each["type"] for each in BOARD["panels"]]
    assert not any(one == two == "row" for one, two in itertools.pairwise([*kinds, "row"]))


@pytest.mark.parametrize("panel", PANELS, ids=[each["title"] for each in PANELS])
def test_a_panel_says_what_it_shows_and_in_what_unit(panel: dict[str, Any]) -> None:
    assert panel["title"].strip()
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
    assert panel["targets"] != []
    names = [target["legendFormat"] for target in panel["targets"]]
    assert len(set(names)) == len(names)
    for target in panel["targets"]:
        asked = target["expr"].count("keyshared_")
        assert asked >= 1
        assert target["expr"].count(SELECTED) == asked, "it shows instances that nobody chose"


def test_no_two_panels_have_one_name_or_one_place() -> None:
    assert len({each["id"] for each in BOARD["panels"]}) == len(BOARD["panels"])
    assert len({each["title"] for each in BOARD["panels"]}) == len(BOARD["panels"])
    taken: set[tuple[int, int]] = set()
    for each in BOARD["panels"]:
        at = each["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, each["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells


@pytest.mark.parametrize("panel", PANELS, ids=[each["title"] for each in PANELS])
def test_a_query_asks_for_what_is_served(panel: dict[str, Any]) -> None:
    for query in queries(panel):
        assert list(selectors(query)) != []
        assert strangers(query) == []


@pytest.mark.parametrize("panel", PANELS, ids=[each["title"] for each in PANELS])
def test_a_unit_is_that_of_the_metric(panel: dict[str, Any]) -> None:
    unit = panel["fieldConfig"]["defaults"]["unit"]
    for query in queries(panel):
        name = next(selectors(query))[0]
        if unit == "bytes":
            assert "_bytes" in name
        elif unit == "cps":
            assert "rate(" in query and name.endswith("_total")
        elif "histogram_quantile" in query:
            assert "_seconds" in name


def test_every_metric_is_on_it() -> None:
    shown = {
        family.name
        for query in EVERY_QUERY
        for name, _ in selectors(query)
        if (family := family_of(name)) is not None
    }
    assert BY_NAME.keys() - shown == set()


def test_prometheus_understands_every_query(tmp_path: Path) -> None:
    rules = [
        {"record": f"q:{number}", "expr": target["expr"].replace(INTERVAL, "1m")}
        for number, target in enumerate(each for panel in PANELS for each in panel["targets"])
    ]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"SUCCESS: {len(rules)} rules found" in promtool("check", "rules", str(file))


def test_planted_strangers_are_found() -> None:
    assert strangers("sum (keyshared_lag_second)") == ["keyshared_lag_second"]
    assert strangers("sum (keyshared_lag_seconds_bucket)") == ["keyshared_lag_seconds_bucket"]
    histogram = "keyshared_process_duration_seconds"
    assert strangers(f"sum ({histogram})") == [histogram]
    assert strangers(f"sum by (le, worker) ({histogram}_bucket)") == ["by worker"]
