"""The alerts that the package comes with, run by promtool over what the package really serves."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from kafka_keyshared import DeadLetter, KeyShared
from kafka_keyshared.local.cluster import Cluster
from kafka_keyshared.web.families import FAMILIES
from tests.support.live import client_conf, group_name, write
from tests.support.scrapes import get, running, scraped
from tests.web.labels import ENUMERATED

ROOT = Path(__file__).parents[2]
RULES = ROOT / "helm" / "kafka-keyshared" / "alerts.yaml"
PAGE = ROOT / "docs" / "how-to" / "alerts.md"
ALERTS = {each["alert"]: each for each in yaml.safe_load(RULES.read_text())["groups"][0]["rules"]}
BY_NAME = {family.name: family for family in FAMILIES}

TARGET = {"namespace": "shop", "job": "billing"}
"""What a Prometheus adds to every series, besides the instance."""

Eventually = Callable[..., None]


def promtool(*arguments: str) -> str:
    """What promtool says of what it finds nothing wrong with."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is missing: install the package prometheus")
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# --- that the rules speak of what there is ---


def selectors(expression: str) -> Iterable[tuple[str, list[tuple[str, str]]]]:
    """Every metric of an expression with the label values that it asks for."""
    for name, asked in re.findall(r"(keyshared_\w+)(?:\{([^}]*)\})?", expression):
        values = re.findall(r'(\w+)=~?"([^"]*)"', asked)
        yield name, [(label, value) for label, found in values for value in found.split("|")]


def strangers(expression: str) -> list[str]:
    """What of an expression no instance serves."""
    found: list[str] = []
    labels = {*TARGET}
    for name, asked in selectors(expression):
        family = BY_NAME.get(name)
        if family is None:
            found.append(name)
            continue
        labels |= {*family.labels}
        found += [
            f"{name}{{{label}={value}}}"
            for label, value in asked
            if value not in ENUMERATED.get((name, label), ())
        ]
    for group in re.findall(r"by \(([^)]*)\)", expression):
        found += [f"by {each}" for each in group.split(", ") if each not in labels]
    return found


def test_the_rules_are_five_and_prometheus_takes_them() -> None:
    assert "SUCCESS: 5 rules found" in promtool("check", "rules", str(RULES))


@pytest.mark.parametrize("name", ALERTS)
def test_a_rule_speaks_of_metrics_and_labels_that_are_served(name: str) -> None:
    expression = ALERTS[name]["expr"]
    assert list(selectors(expression)) != []
    assert strangers(expression) == []
    texts = " ".join(ALERTS[name]["annotations"].values())
    told = set(re.findall(r"\$labels\.(\w+)", texts))
    grouped = {each for by in re.findall(r"by \(([^)]*)\)", expression) for each in by.split(", ")}
    assert told <= grouped


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


# --- that they fire when they should, and only then ---


Expected: TypeAlias = Mapping[str, Sequence[Mapping[str, str]]]
"""By alert, the labels that it fires with besides those of the target and its severity."""


def one_series(name: str, labels: Mapping[str, str], instance: str = "one") -> str:
    """A series as Prometheus has it."""
    shown = {**TARGET, "instance": instance, **labels}
    inner = ",".join(f'{label}="{value}"' for label, value in shown.items())
    return f"{name}{{{inner}}}"


def series(name: str, instance: str = "one", **labels: str) -> str:
    """One that the package serves, as Prometheus has it; no other can be made."""
    assert labels.keys() == set(BY_NAME[name].labels), name
    for label, value in labels.items():
        assert value in ENUMERATED.get((name, label), (value,)), (name, label, value)
    return one_series(name, labels, instance)


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


STARTED = series("keyshared_start_time_seconds")
DONE = series("keyshared_records_processed_total", topic="orders", outcome="ok")
DEAD = series("keyshared_records_processed_total", topic="orders", outcome="dead_lettered")
BACKLOG = series("keyshared_backlog_records", topic="orders", partition="0")
LAG = series("keyshared_lag_records", topic="orders", partition="0")
OLDEST = series("keyshared_partition_oldest_incomplete_seconds", topic="orders", partition="0")
BLOCKED = series("keyshared_closed_lanes", state="blocked")
WAITING = series("keyshared_closed_lanes", state="waiting")
CLOSED = series("keyshared_closed_lane_records")

HEALTHY = {
    STARTED: "1000x90",
    DONE: "0+600x90",  # ten a second
    DEAD: "0x90",
    BACKLOG: "30x90",
    LAG: "30x90",
    OLDEST: "1x90",
    BLOCKED: "0x90",
    WAITING: "0x90",
    CLOSED: "0x90",
}
HELD = {"KeysharedPositionHeld": [{"topic": "orders", "partition": "0"}]}
ALONE: Sequence[Mapping[str, str]] = [{}]

SCENES: Mapping[str, tuple[Mapping[str, str], Expected]] = {
    "all is well": ({}, {}),
    "nothing comes and nothing is left": ({DONE: "500x90", BACKLOG: "0x90", LAG: "0x90"}, {}),
    "a wave that is worked off in time": ({BACKLOG: "8000x60 30x30"}, {}),
    "a wave that has only begun": ({BACKLOG: "30x55 60000x35"}, {}),
    "more comes than is done": ({BACKLOG: "0+900x90"}, {"KeysharedBehind": ALONE}),
    "nothing is done any more": (
        {DONE: "0+600x10 6000x80", BACKLOG: "0x10 0+600x80"},
        {"KeysharedBehind": ALONE},
    ),
    "one record hangs, the others go on": (
        {LAG: "30x10 0+600x80", BACKLOG: "30x10 99x80", OLDEST: "1x10 0+60x80"},
        HELD,
    ),
    "a record that takes four minutes": ({OLDEST: "240x90"}, {}),
    "a key waits for its retry": ({WAITING: "1x90", CLOSED: "40x90", OLDEST: "30x90"}, {}),
    "a key is blocked": (
        {
            BLOCKED: "0x30 1x60",
            CLOSED: "0x30 0+5x60",
            LAG: "30x30 0+600x60",
            BACKLOG: "0x30 0+5x60",
            OLDEST: "1x30 0+60x60",
        },
        {"KeysharedKeysBlocked": ALONE, **HELD},
    ),
    "a key is blocked and nothing else comes": (
        {DONE: "500x90", BLOCKED: "1x90", CLOSED: "10x90", LAG: "90x90", BACKLOG: "10x90"},
        {"KeysharedKeysBlocked": ALONE},
    ),
    "the first dead letter ever": (
        {DEAD: "0x55 1x35"},
        {"KeysharedDeadLetters": [{"topic": "orders"}]},
    ),
    "a dead letter half an hour ago": ({DEAD: "0x25 1x65"}, {}),
    "the only instance is gone": (
        dict.fromkeys(HEALTHY, "1x40 _x50") | {STARTED: "1000x40 _x50"},
        {"KeysharedGone": ALONE},
    ),
    "it is gone for a moment": ({STARTED: "1000x52 _x4 2000x34"}, {}),
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
        client_conf(embedded_cluster, group_name()), [topic], workers=2, dlq=True, http_port=0
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
        eventually(lambda: scraped(url).get(dead) == 1, 60)
        after = read(url)
    values = {
        each: f"{before.get(each, '_')}x25 {after.get(each, '_')}x25"
        for each in before.keys() | after.keys()
    }
    assert "SUCCESS" in judged(tmp_path, values, 20, {})
    fired = {"KeysharedDeadLetters": [{"topic": topic}]}
    assert "SUCCESS" in judged(tmp_path, values, 35, fired)
