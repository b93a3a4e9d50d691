"""The group view over a running group: who is there, who has gone, who is slow, what hurts it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kafka_keyshared import KeyShared
from kafka_keyshared.dlq.topics import make_topic
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.observability.web.group.view import GroupView
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.support.cli import in_process
from tests.support.group_instances import PARTITIONS, Instances, Running, held, shared, told_in
from tests.support.live_cluster import client_conf, group_name, write

Eventually = Callable[..., None]


@pytest.fixture
def instances(embedded_cluster: Cluster, topic: str, eventually: Eventually) -> Iterator[Instances]:
    with Instances(embedded_cluster, topic, eventually) as made:
        yield made


def test_one_console_shows_all_who_has_stopped_who_was_killed_and_who_is_slow(
    instances: Instances,
) -> None:
    instances.cluster.create_topic(f"{instances.topic}.status", 1)
    a, b, c = instances.start("a", "b", "c", **told_in(instances.topic))
    view = instances.until(a, lambda view: shared(view, "a", "b", "c"))
    assert view.healthy
    assert [each.here for each in view.instances] == [True, False, False]
    assert {each.report.topics for each in view.instances} == {(instances.topic,)}
    assert all(each.report.url.startswith("http://127.0.0.1:") for each in view.instances)

    c.pause = 0.5
    flowing = threading.Event()

    def flow() -> None:
        while not flowing.wait(0.2):
            write(instances.cluster, instances.topic, [(b"%d" % n, b"") for n in range(120)])

    writing = threading.Thread(target=flow, daemon=True)
    writing.start()
    try:
        # On a busy machine another one may be slow for a report, too.
        slow = instances.until(
            a, lambda view: [each.label for each in view.instances if each.slow] == ["c"]
        )
    finally:
        flowing.set()
        writing.join(60)
    assert "slow" in [each.code for each in slow.remarks]

    c.pause = 0.0
    b.member.abandon()
    silent = instances.until(a, lambda view: any(e.state == "silent" for e in view.instances))
    (gone,) = [each for each in silent.instances if each.state == "silent"]
    assert (gone.label, gone.per_second) == ("b", None)
    assert any(each.code == "silent" and each.labels == ("b",) for each in silent.remarks)
    taken = instances.until(a, lambda view: shared(view, "a", "c"))
    assert "b" in {each.label for each in taken.instances}, "still told of"

    assert c.member.stop() == 0
    left = instances.until(a, lambda view: shared(view, "a"))
    assert "c" not in {each.label for each in left.instances}, "it has said that it stops"


def test_the_command_line_shows_all_from_any_of_them(
    instances: Instances, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    instances.cluster.create_topic(f"{instances.topic}.status", 1)
    a, b = instances.start("a", "b", http_port=0, **told_in(instances.topic))
    asked: dict[str, Running] = {"a": a, "b": b}
    for name, each in asked.items():
        instances.until(each, lambda view: shared(view, "a", "b") and view.healthy)
        assert each.member.app.admin is not None
        ended = in_process(capsys, "status", "--group", each.member.app.admin.url)
        assert ended.status == 0, ended
        lines = [line for line in ended.out.splitlines() if line.startswith("│")]
        assert [line.split()[1] for line in lines] == ["a", "b"]
        assert ["(asked)" in line for line in lines] == [name == "a", name == "b"]
        assert all("running" in line and "healthy" in line for line in lines)

    a.member.abandon()
    assert b.member.app.admin is not None
    url = b.member.app.admin.url
    instances.until(b, lambda view: any(each.state == "silent" for each in view.instances))
    ended = in_process(capsys, "status", "--group", url, "--json")
    assert ended.status == 3
    states = {each["label"]: each["state"] for each in json.loads(ended.out)["instances"]}
    assert states["a"] == "silent"
    assert "silent for" in in_process(capsys, "status", "--group", url).out

    assert b.member.app.http is not None
    metrics = f"http://127.0.0.1:{b.member.app.http.port}"
    ended = in_process(capsys, "status", "--group", metrics)
    assert ended.status == 1
    assert "there is no admin API there; give the address that the instance logs" in ended.err


def test_instances_that_are_named_by_address_are_asked(
    instances: Instances, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("a-token-of-this-test")
    (a,) = instances.start("a", console_host="0.0.0.0", http_token_file=str(token))
    assert a.member.app.admin is not None
    addresses = [f"localhost:{a.member.app.admin.port}", "localhost:1"]
    (b,) = instances.start("b", group_view_addresses=addresses, http_token_file=str(token))
    view = instances.until(b, lambda view: shared(view, "a", "b"))
    assert (view.source, view.place) == ("addresses", ", ".join(addresses))
    assert any(each.startswith("127.0.0.1:1: no report: ") for each in view.troubles)
    assert a.member.stop() == 0
    left = instances.until(b, lambda view: shared(view, "b") and len(view.instances) == 1)
    assert [each.label for each in left.instances] == ["b"]


def test_one_that_is_asked_says_that_it_stops_before_nobody_answers(
    instances: Instances,
) -> None:
    """However quick the stop is: none of those who ask may take it for a death."""
    (a,) = instances.start("a", group_view_interval=1.0)
    assert a.member.app.admin is not None
    asks: dict[str, Any] = {"group_view_addresses": [f"127.0.0.1:{a.member.app.admin.port}"]}
    b, c = instances.start("b", "c", group_view_interval=1.0, **asks)
    for each in (b, c):
        instances.until(each, lambda view: "a" in held(view))
    # A commit that is refused during the rebalance, of a partition that goes, ends with 1.
    instances.eventually(lambda: all(len(each.member.assigned) == 2 for each in (a, b, c)), 90)
    instances.eventually(lambda: a.member.committed.keys() >= a.member.assigned, 90)
    assert a.member.stop() == 0
    for each in (b, c):
        states: set[str] = set()

        def gone(view: GroupView, states: set[str] = states) -> bool:
            states.update(one.state for one in view.instances if one.label == "a")
            return "a" not in [one.label for one in view.instances]

        instances.until(each, gone)
        assert "silent" not in states, states


def test_one_that_is_killed_is_silent_to_those_who_ask(instances: Instances) -> None:
    (a,) = instances.start("a", group_view_interval=1.0)
    assert a.member.app.admin is not None
    asks: dict[str, Any] = {"group_view_addresses": [f"127.0.0.1:{a.member.app.admin.port}"]}
    (b,) = instances.start("b", group_view_interval=1.0, **asks)
    instances.until(b, lambda view: "a" in held(view))
    a.member.abandon()
    silent = instances.until(b, lambda view: any(each.state == "silent" for each in view.instances))
    assert [each.label for each in silent.instances if each.state == "silent"] == ["a"]


def test_a_topic_that_is_not_there_hurts_nothing_and_is_told(
    instances: Instances, caplog: pytest.LogCaptureFixture
) -> None:
    (a,) = instances.start("a", **told_in(instances.topic))
    write(instances.cluster, instances.topic, [(b"%d" % n, b"") for n in range(50)])
    instances.eventually(lambda: a.member.done() == 50, 60)
    view = instances.until(a, lambda view: len(view.troubles) == 2)
    assert all("does not exist" in each for each in view.troubles)
    assert held(view) == {"a": PARTITIONS}, "it knows of itself"
    lines = [each for each in caplog.records if "was not written" in each.getMessage()]
    instances.cluster.create_topic(f"{instances.topic}.status", 1)
    well = instances.until(a, lambda view: not view.troubles)
    assert held(well) == {"a": PARTITIONS}
    assert len(lines) == 1, "and not again and again"
    assert a.member.stop() == 0


def test_whoever_looks_before_the_topic_is_made_waits_for_that(
    instances: Instances, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = threading.Event()

    def late(*given: Any) -> None:
        made.wait(2.0)
        make_topic(*given)

    monkeypatch.setattr("kafka_keyshared.app.group.make_topic", late)
    (a,) = instances.start("a", group_view_create=True, **told_in(instances.topic))
    view = a.view()
    assert view.troubles == (), "the topic is on its way"
    made.set()
    instances.until(a, lambda view: shared(view, "a") and not view.troubles)


def test_without_a_setting_the_view_says_so(instances: Instances) -> None:
    (a,) = instances.start("a")
    view = a.view()
    assert (view.source, view.instances) == ("none", ())
    assert view.text.startswith("no group view configured")


def test_what_is_told_is_not_consumed_here_too(embedded_cluster: Cluster) -> None:
    conf = client_conf(embedded_cluster, group_name())
    with ExitStack(), pytest.raises(ConfigError, match="is consumed here too"):
        KeyShared(conf, ["^orders.*"], group_view_topic="orders.status")
