"""The alerts that the package comes with, run by promtool over what the package really serves."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from kafka_keyshared import DeadLetter, KeyShared
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.support.http_scrapes import get, running, scraped
from tests.support.live_cluster import client_conf, write
from tests.web.alert_scenes import (
    ALONE,
    BLOCKED,
    DEAD,
    HEALTHY,
    HELD,
    OLDEST,
    SCENES,
    STARTED,
    TARGET,
    Expected,
    one_series,
)
from tests.web.queries import grouped, promtool, selectors, strangers

ROOT = Path(__file__).parents[2]
RULES = ROOT / "helm" / "kafka-keyshared" / "alerts.yaml"
PAGE = ROOT / "docs" / "operate" / "alerts.md"
RUNBOOK = ROOT / "docs" / "operate" / "runbook.md"
ALERTS = {each["alert"]: each for each in yaml.safe_load(RULES.read_text())["groups"][0]["rules"]}
Eventually = Callable[..., None]


# --- that the rules speak of what there is ---


def test_prometheus_takes_the_rules() -> None:
    assert "SUCCESS: 20 rules found" in promtool("check", "rules", str(RULES))


@pytest.mark.parametrize("name", ALERTS)
def test_a_rule_speaks_of_metrics_and_labels_that_are_served(name: str) -> None:
    expression = ALERTS[name]["expr"]
    assert list(selectors(expression)) != []
    assert strangers(expression) == []
    texts = " ".join(ALERTS[name]["annotations"].values())
    told = set(re.findall(r"\$labels\.(\w+)", texts))
    assert told <= {*grouped(expression)}


def test_a_planted_stranger_is_found() -> None:
    assert strangers("sum by (topic) (keyshared_lag) > 0") == ["keyshared_lag", "by topic"]
    blocked = 'sum by (job, key) (keyshared_closed_lanes{state=~"blocked|held"})'
    assert strangers(blocked) == ["keyshared_closed_lanes{state=held}", "by key"]


def test_the_page_shows_the_rules_as_they_are() -> None:
    blocks = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S)
    assert RULES.read_text("utf-8") in blocks


@pytest.mark.parametrize("name", ALERTS)
def test_the_page_has_a_word_on_each(name: str) -> None:
    text = re.sub(r"^```.*?^```$", "", PAGE.read_text("utf-8"), flags=re.M | re.S)
    assert f"`{name}`" in text


def test_the_runbook_has_a_section_for_each_and_each_alert_leads_there() -> None:
    text = RUNBOOK.read_text("utf-8")
    sections = re.split(r"^## (\w+)$", text, flags=re.M)[1:]
    assert dict(zip(sections[::2], sections[1::2], strict=True)).keys() == ALERTS.keys()
    for section in sections[1::2]:
        parts = re.findall(r"^\*\*(What|Look|Do)\.\*\* \S", section, re.M)
        assert parts == ["What", "Look", "Do"], section
    for name, alert in ALERTS.items():
        page, _, anchor = alert["annotations"]["runbook"].partition("#")
        assert (ROOT / page, anchor) == (RUNBOOK, name.lower())


# --- that they fire when they should, and only then ---


def test_each_alert_fires_in_a_scene_and_a_healthy_instance_has_all_that_they_look_at() -> None:
    fired = {name for _, expected in SCENES.values() for name in expected}
    assert fired == ALERTS.keys()
    there = {each.partition("{")[0] for each in HEALTHY}
    asked = {name for alert in ALERTS.values() for name, _ in selectors(alert["expr"])}
    assert asked <= there


def judged(folder: Path, values: Mapping[str, str], at: int, expected: Expected) -> str:
    """What promtool says where these alerts fire at that minute, and no others; it fails else.

    ``values`` are of scrapes once a minute, in promtool's notation.
    """
    test = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": each, "values": v} for each, v in values.items()],
                "alert_rule_test": [
                    {
                        "eval_time": f"{at}m",
                        "alertname": name,
                        "exp_alerts": [told(name, labels) for labels in expected.get(name, ())],
                    }
                    for name in ALERTS
                ],
            }
        ],
    }
    written = folder / "test.yaml"
    written.write_text(yaml.safe_dump(test))
    return promtool("test", "rules", str(written))


def told(name: str, labels: Mapping[str, str]) -> dict[str, Any]:
    """An alert that fires, as promtool expects it."""
    rule = ALERTS[name]
    all_labels = {**TARGET, **labels}
    return {
        "exp_labels": {**all_labels, **rule["labels"]},
        "exp_annotations": {
            kind: re.sub(r"{{ \$labels\.(\w+) }}", lambda found: all_labels[found[1]], text)
            for kind, text in rule["annotations"].items()
        },
    }


@pytest.mark.parametrize("scene", SCENES)
def test_what_should_fire_does_and_nothing_else(scene: str, tmp_path: Path) -> None:
    differs, expected = SCENES[scene]
    assert "SUCCESS" in judged(tmp_path, {**HEALTHY, **differs}, 60, expected)


def test_another_instance_makes_up_for_nothing_but_the_one_that_is_gone(tmp_path: Path) -> None:
    two = {each.replace('"one"', '"two"'): values for each, values in HEALTHY.items()}
    held = {**HEALTHY, OLDEST: "0+60x90", BLOCKED: "1x90", DEAD: "0x55 1x35"}
    expected = {
        "KeysharedKeysBlocked": ALONE,
        "KeysharedDeadLetters": [{"topic": "orders"}],
        **HELD,
    }
    assert "SUCCESS" in judged(tmp_path, {**two, **held}, 60, expected)
    assert "SUCCESS" in judged(tmp_path, {**two, STARTED: "1000x30 _x60"}, 60, {})


def test_what_is_expected_and_does_not_fire_is_found(tmp_path: Path) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is missing: install the package prometheus")
    with pytest.raises(AssertionError, match="KeysharedGone"):
        judged(tmp_path, HEALTHY, 60, {"KeysharedGone": ALONE})
    with pytest.raises(AssertionError, match="KeysharedKeysBlocked"):
        judged(tmp_path, {**HEALTHY, BLOCKED: "1x90"}, 60, {})


# --- over what a real instance serves ---


def read(url: str) -> dict[str, float]:
    """Every series that a Prometheus would have after a scrape."""
    return {
        one_series(sample.name, sample.labels): sample.value
        for family in text_string_to_metric_families(get(f"{url}/metrics")[2])
        for sample in family.samples
    }


def test_the_first_dead_letter_of_a_real_run_is_told(
    embedded_cluster: Cluster, topic: str, eventually: Eventually, tmp_path: Path
) -> None:
    for name in (topic, f"{topic}.dlq"):
        embedded_cluster.create_topic(name, 1)
    app = KeyShared(
        client_conf(embedded_cluster, TARGET["group"]), [topic], workers=2, dlq=True, http_port=0
    )

    @app.handler
    def handle(record: Any) -> None:
        if record.value() == b"bad":
            raise DeadLetter("no such customer")

    with running(app) as url:
        eventually(lambda: STARTED in read(url), 60)
        before = read(url)
        write(embedded_cluster, topic, [(b"one", b"good"), (b"two", b"bad")])
        dead = ("keyshared_records_processed_total", ("dead_lettered", topic))
        left = ("keyshared_backlog_records", ("0", topic))
        eventually(lambda: scraped(url).get(dead) == 1 and scraped(url).get(left) == 0, 60)
        after = read(url)
    values = {
        each: f"{before.get(each, '_')}x25 {after.get(each, '_')}x25"
        for each in before.keys() | after.keys()
    }
    assert "SUCCESS" in judged(tmp_path, values, 20, {})
    fired = {"KeysharedDeadLetters": [{"topic": topic}]}
    assert "SUCCESS" in judged(tmp_path, values, 35, fired)
