"""The group view where its user may not: records are consumed all the same, and people are told."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined] # not in its __all__
    AclOperation,
    ResourceType,
)

from kafka_keyshared.observability.diagnosis import judge
from kafka_keyshared.status import Status
from tests.support.cli import in_process
from tests.support.group_instances import Instances, Running, held, told_in
from tests.support.http_scrapes import scraped
from tests.support.live_cluster import write
from tests.support.secured_broker import Secured

Eventually = Callable[..., None]

RECORDS = 60


@pytest.fixture
def instances(secured: Secured, topic: str, eventually: Eventually) -> Iterator[Instances]:
    """Alice's: she may read their topic, and belong to their group."""
    with Instances(secured.cluster, topic, eventually) as made:
        secured.allow(ResourceType.TOPIC, topic, AclOperation.READ)
        secured.allow(ResourceType.GROUP, made.group, AclOperation.READ)
        yield made


def status_of(each: Running) -> Status:
    status = each.member.app.status()
    assert status is not None
    return status


def told(caplog: pytest.LogCaptureFixture, words: str) -> list[str]:
    lines = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    return [each for each in lines if words in each]


def test_each_right_that_is_missing_is_told_and_what_to_allow_and_nothing_is_held_up(
    secured: Secured,
    instances: Instances,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(judge, "REPORTS", 0.5)
    topic = f"{instances.topic}.status"
    secured.cluster.create_topic(topic, 1)
    secured.allow(ResourceType.TOPIC, topic, AclOperation.DESCRIBE)
    (other,) = instances.start("other", **told_in(instances.topic))
    alice = secured.alice(instances.group)
    (a,) = instances.start("a", user=alice, http_port=0, **told_in(instances.topic))
    write(secured.cluster, instances.topic, [(b"%d" % n, b"") for n in range(RECORDS)])
    instances.eventually(lambda: a.member.done() + other.member.done() == RECORDS, 90)

    # Neither written nor read.
    instances.eventually(lambda: status_of(a).instance_reports["failed"] >= 3, 60)
    view = instances.until(a, lambda view: len(view.troubles) == 2)
    assert f"this user may not write to topic '{topic}'" in view.troubles[0]
    assert f"this user may not read topic '{topic}'" in view.troubles[1]
    assert "healthy" not in view.text, "who hears nobody cannot know"
    assert status_of(a).instance_reports["written"] == 0
    (line,) = told(caplog, "the report of this instance was not written")
    assert f"this user may not write to topic '{topic}'; allow WRITE on topic {topic}" in line
    assert "Records are still consumed" in line
    (line,) = told(caplog, "the group cannot be looked at from here")
    assert f"allow READ and DESCRIBE on topic {topic}" in line
    assert a.member.app.http is not None
    url = f"http://127.0.0.1:{a.member.app.http.port}"
    ended = in_process(capfd, "status", url)
    assert ended.status == 0, "it gets on"
    assert "the group has had no report of this instance for" in ended.out
    assert f"allow WRITE on topic {topic}" in ended.out
    assert "rdkafka" not in ended.err, "the client repeats none of it"
    assert scraped(url)["keyshared_instance_reports_total", ("failed",)] >= 3
    assert "a" not in held(other.view())

    # Written and not read.
    secured.allow(ResourceType.TOPIC, topic, AclOperation.WRITE)
    instances.until(other, lambda view: {"a", "other"} <= set(held(view)))
    view = instances.until(a, lambda view: len(view.troubles) == 1)
    assert f"this user may not read topic '{topic}'" in view.troubles[0]
    assert list(held(view)) == ["a"], "it knows of itself"
    instances.eventually(lambda: status_of(a).report_failing_seconds is None, 60)
    assert scraped(url)["keyshared_instance_reports_total", ("written",)] >= 1

    # Read, too.
    secured.allow(ResourceType.TOPIC, topic, AclOperation.READ)
    view = instances.until(a, lambda view: not view.troubles and len(held(view)) == 2)
    assert view.healthy
    lines = [each for each in caplog.records if each.name == "kafka_keyshared.group"]
    warnings = [each for each in lines if each.levelname == "WARNING"]
    assert len(warnings) == 2, "once each, and not again and again"
    assert a.member.stop() == 0


@pytest.mark.parametrize("create", [False, True])
def test_a_topic_that_is_not_there_or_cannot_be_made_is_told_with_what_to_do(
    secured: Secured, instances: Instances, caplog: pytest.LogCaptureFixture, *, create: bool
) -> None:
    topic = f"{instances.topic}.status"
    alice = secured.alice(instances.group)
    (a,) = instances.start("a", user=alice, group_view_create=create, **told_in(instances.topic))
    write(secured.cluster, instances.topic, [(b"%d" % n, b"") for n in range(RECORDS)])
    instances.eventually(lambda: a.member.done() == RECORDS, 90)
    instances.eventually(lambda: status_of(a).instance_reports["failed"] >= 3, 60)
    (line,) = told(caplog, "the report of this instance was not written")
    why = "cannot be made or seen by this user" if create else "does not exist, or this user may"
    assert f"topic '{topic}' {why}" in line
    for cure in (
        "create it, with cleanup.policy=compact,delete",
        f"WRITE and READ on topic {topic}",
    ):
        assert cure in line
    assert (f"allow CREATE on topic {topic}" in line) == create
    assert why in instances.until(a, lambda view: len(view.troubles) == 2).troubles[0]

    # Made by somebody who may, it is well; the user may make it alone, too.
    secured.allow(ResourceType.TOPIC, topic, AclOperation.WRITE)
    secured.allow(ResourceType.TOPIC, topic, AclOperation.READ)
    if create:
        secured.allow(ResourceType.TOPIC, topic, AclOperation.CREATE)
    else:
        secured.cluster.create_topic(topic, 1)
    instances.until(a, lambda view: not view.troubles)
    instances.eventually(lambda: status_of(a).instance_reports["written"] > 0, 60)
    assert a.member.stop() == 0
