"""Instances of one group, each with a console, and the group as one of them shows it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from kafka_keyshared.observability.admin_client import AdminClient
from kafka_keyshared.observability.web.group.view import GroupView
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.support.live_cluster import Member, client_conf, group_name

Eventually = Callable[..., None]

PARTITIONS = 6
_PAUSE = threading.Event()


class Running:
    """An instance of a group, with its console."""

    def __init__(self, conf: Mapping[str, Any], topic: str, name: str, **options: Any) -> None:
        self.name = name
        self.pause = 0.001
        given = {"console_port": 0, "commit_interval": 0.2, "revoke_deadline": 1.0}
        named = {**conf, "group.instance.id": name}
        self.member = Member(named, [topic], self._handle, name=name, **(given | options))
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
    """Instances of one group over six partitions; they end with the block that they are for."""

    def __init__(self, cluster: Cluster, topic: str, eventually: Eventually) -> None:
        self.cluster = cluster
        self.topic = topic
        self.group = group_name()
        self.eventually = eventually
        self.all: list[Running] = []
        cluster.create_topic(topic, PARTITIONS)

    def __enter__(self) -> Instances:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self.all:
            each.end()

    def start(
        self, *names: str, user: dict[str, Any] | None = None, **options: Any
    ) -> list[Running]:
        """Start instances, and wait until each has its part; ``user`` is whose they are."""
        conf = client_conf(self.cluster, self.group) | (user or {})
        begun = [Running(conf, self.topic, each, **options) for each in names]
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


def held(view: GroupView) -> dict[str, int]:
    return {each.label: each.held_partitions for each in view.instances if each.state == "running"}


def shared(view: GroupView, *names: str) -> bool:
    """Whether these, and no others, have all partitions and are at rest."""
    found = held(view)
    return set(found) == set(names) and sum(found.values()) == PARTITIONS and view.unheld == 0


def told_in(topic: str) -> dict[str, Any]:
    return {"group_view_topic": f"{topic}.status", "group_view_interval": 1.0}
