"""The group view over a running group: who is there, who has gone, who is slow, what hurts it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kafka_keyshared import KeyShared
from kafka_keyshared.admin_client import AdminClient
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.local.cluster import Cluster
from kafka_keyshared.web.group.view import GroupView
from tests.support.live import Member, client_conf, group_name, write

Eventually = Callable[..., None]

PARTITIONS = 6
_PAUSE = threading.Event()


class Running:
    """An instance of a group, with its console."""

    def __init__(self, cluster: Cluster, group: str, topic: str, name: str, **options: Any) -> None:
        conf = client_conf(cluster, group) | {"group.instance.id": name}
        self.name = name
        self.pause = 0.001
        given = {"console_port": 0, "commit_interval": 0.2, "revoke_deadline": 1.0}
        self.member = Member(conf, [topic], self._handle, name=name, **(given | options))
        self.member.start()

    def _handle(self, _record: object) -> None:
        _PAUSE.wait(self.pause)

    def view(self) -> GroupView:
        """The group as its admin API shows it."""
        assert self.member.app.admin is not None
        return AdminClient(self.member.app.admin.url, timeout=60.0).group()

    @property
    def serves(self) -> bool:
        return self.member.app.admin is not None and self.member.app.status() is not None

    def end(self) -> None:
        if self.member.status is None and self.member.error is None:
            self.member.stop()


class Instances:
    """Instances of one group over six partitions."""

    def __init__(self, cluster: Cluster, topic: str, eventually: Eventually) -> None:
        self.cluster = cluster
        self.topic = topic
        self.group = group_name()
        self.eventually = eventually
        self.all: list[Running] = []
        cluster.create_topic(topic, PARTITIONS)

    def start(self, *names: str, **options: Any) -> list[Running]:
        """Start instances, and wait until each has its part."""
        begun = [Running(self.cluster, self.group, self.topic, each, **options) for each in names]
        self.all += begun
        self.eventually(lambda: all(each.serves for each in begun), 60)
        return begun

    def until(self, looker: Running, holds: Callable[[GroupView], bool]) -> GroupView:
        """Look until it is so."""
        found: list[GroupView] = []

        def so() -> bool:
            found[:] = [looker.view()]
            return holds(found[0])

        self.eventually(so, 90)
        return found[0]


@pytest.fixture
def instances(embedded_cluster: Cluster, topic: str, eventually: Eventually) -> Iterator[Instances]:
    made = Instances(embedded_cluster, topic, eventually)
    yield made
    for each in made.all:
        each.end()


def held(view: GroupView) -> dict[str, int]:
    return {each.label: each.held_partitions for each in view.instances if each.state == "running"}


def shared(view: GroupView, *names: str) -> bool:
    """Whether these, and no others, have all partitions and are at rest."""
    found = held(view)
    return set(found) == set(names) and sum(found.values()) == PARTITIONS and view.unheld == 0


def told_in(topic: str) -> dict[str, Any]:
    return {"group_view_topic": f"{topic}.status", "group_view_interval": 1.0}


def test_one_console_shows_all_who_has_stopped_who_was_killed_and_who_is_slow(
    instances: Instances,
) -> None:
    instances.cluster.create_topic(f"{instances.topic}.status", 1)
    a, b, c = instances.start("a", "b", "c", **told_in(instances.topic))
    view = instances.until(a, lambda view: shared(view, "a", "b", "c"))
    assert view.healthy
    assert [each.here for each in view.instances] == [True, False, False]
    assert {each.beat.topics for each in view.instances} == {(instances.topic,)}
    assert all(each.beat.url.startswith("http://127.0.0.1:") for each in view.instances)

    c.pause = 0.5
    flowing = threading.Event()

    def flow() -> None:
        while not flowing.wait(0.2):
            write(instances.cluster, instances.topic, [(b"%d" % n, b"") for n in range(120)])

    writing = threading.Thread(target=flow, daemon=True)
    writing.start()
    try:
        slow = instances.until(a, lambda view: any(each.slow for each in view.instances))
    finally:
        flowing.set()
        writing.join(60)
    assert [each.label for each in slow.instances if each.slow] == ["c"]
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
    assert any(each.startswith("127.0.0.1:1: no beat: ") for each in view.troubles)
    assert a.member.stop() == 0
    left = instances.until(b, lambda view: shared(view, "b"))
    assert [each.label for each in left.instances if each.state != "silent"] == ["b"]


def test_a_topic_that_is_not_there_hurts_nothing_and_is_told(
    instances: Instances, caplog: pytest.LogCaptureFixture
) -> None:
    (a,) = instances.start("a", **told_in(instances.topic))
    write(instances.cluster, instances.topic, [(b"%d" % n, b"") for n in range(50)])
    instances.eventually(lambda: a.member.done() == 50, 60)
    view = instances.until(a, lambda view: len(view.troubles) == 2)
    assert all("does not exist" in each for each in view.troubles)
    assert held(view) == {"a": PARTITIONS}, "it knows of itself"
    lines = [each for each in caplog.records if "does not hear" in each.getMessage()]
    instances.cluster.create_topic(f"{instances.topic}.status", 1)
    well = instances.until(a, lambda view: not view.troubles)
    assert held(well) == {"a": PARTITIONS}
    assert len(lines) == 1, "and not again and again"
    assert a.member.stop() == 0


def test_without_a_setting_the_view_says_so(instances: Instances) -> None:
    (a,) = instances.start("a")
    view = a.view()
    assert (view.source, view.instances) == ("none", ())
    assert view.text.startswith("no group view configured")


def test_what_is_told_is_not_consumed_here_too(embedded_cluster: Cluster) -> None:
    conf = client_conf(embedded_cluster, group_name())
    with ExitStack(), pytest.raises(ConfigError, match="is consumed here too"):
        KeyShared(conf, ["^orders.*"], group_view_topic="orders.status")
