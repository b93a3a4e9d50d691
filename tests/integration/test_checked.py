"""With `check_invariants` an instance that does not believe itself any more ends, and says why."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace

import pytest

from kafka_keyshared.errors import InvariantError
from kafka_keyshared.runtime.instance_view import InstanceView
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.conftest import Eventually
from tests.support.live_cluster import Member, client_conf, committed, group_name, numbered, write


def test_a_rule_that_does_not_hold_ends_the_instance_without_another_commit(
    any_cluster: Cluster, topic: str, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    any_cluster.create_topic(topic, 1)
    group = group_name()
    member = Member(
        client_conf(any_cluster, group), [topic], lambda record: None, check_invariants=True
    )
    planted = threading.Event()
    stepped = member.app.hooks.stepped
    assert stepped is not None

    def lose_count(view: InstanceView) -> None:
        stepped(view)
        if planted.is_set():
            view.subscriptions["default"].window.records += 7

    member.app.hooks = replace(member.app.hooks, stepped=lose_count)
    write(any_cluster, topic, numbered(500))
    with caplog.at_level(logging.CRITICAL, logger="kafka_keyshared"):
        member.start()
        eventually(lambda: member.position() == 500, 60.0)
        planted.set()
        member.join()
    assert isinstance(member.error, InvariantError)
    assert "the window counts" in str(member.error)
    assert "stopping without a commit: InvariantError" in caplog.text
    assert committed(any_cluster, group, topic) == (500, "")
