"""What a group looks like, by the reports of its instances: a test for each rule."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_keyshared.observability.web.group import view
from kafka_keyshared.observability.web.group.view import Looker, group_view
from tests.support.instance_reports import EVERY, codes, heard, report, seen


def test_a_group_of_which_nothing_is_to_be_said_is_healthy() -> None:
    found = seen(heard("a", 0, 1), heard("b", 2), size=3)
    assert (found.text, found.healthy, found.remarks) == ("healthy: 2 instances", True, ())
    assert [(each.label, each.state, each.here) for each in found.instances] == [
        ("a", "running", True),
        ("b", "running", False),
    ]
    assert (found.partitions, found.unheld) == (3, 0)


def test_without_a_setting_it_says_what_to_set() -> None:
    found = group_view((), {}, Looker("billing", "", "a"))
    assert found.text.startswith("no group view configured: set group_view_topic")
    assert found.healthy


def test_one_that_has_missed_three_reports_is_silent_and_not_before() -> None:
    last = view.SILENT_REPORTS * EVERY
    assert seen(heard("a", 0), heard("b", 1, ago=last)).instances[1].state == "running"
    found = seen(heard("a", 0), heard("b", 1, 2, ago=last + 1))
    assert [each.state for each in found.instances] == ["running", "silent"]
    assert not found.healthy
    assert found.text == (
        "b has not been heard for 16 s; it had 2 partitions that no other instance has taken over"
    )


def test_one_that_is_silent_is_no_failure_once_others_have_what_it_had() -> None:
    found = seen(heard("a", 0, 1), heard("b", 1, ago=60.0), size=2)
    assert found.text == "b has not been heard for 60 s"
    assert found.healthy
    assert "overlap" not in codes(found), "what it said is of before"


def test_one_that_is_silent_for_long_is_forgotten() -> None:
    assert len(seen(heard("a", 0), heard("b", 1, ago=view.FORGOTTEN)).instances) == 2
    assert len(seen(heard("a", 0), heard("b", 1, ago=view.FORGOTTEN + 1)).instances) == 1


@pytest.mark.parametrize("phase", ["stopping", "stopped"])
def test_one_that_was_on_its_way_out_is_shown_until_it_is_silent(phase: Any) -> None:
    assert seen(heard("a", 0), heard("b", phase=phase)).instances[1].state == "stopping"
    assert len(seen(heard("a", 0), heard("b", phase=phase, ago=16.0)).instances) == 1


def test_who_does_not_hear_everybody_does_not_say_that_all_is_well() -> None:
    looker = Looker(
        "billing", "a-1-0", "a", "topic", "reports", troubles=("may not read 'reports'",)
    )
    found = group_view([heard("a", 0)], {}, looker)
    assert found.text == "some instances may be missing: may not read 'reports'"
    worse = group_view([heard("a", 0), heard("b", 1, ago=60.0)], {}, looker)
    assert worse.text.startswith("b has not been heard for 60 s"), "what to see to stands first"


def test_other_groups_of_the_topic_are_not_shown() -> None:
    found = seen(heard("a", 0), heard("b", 0, group="shipping"))
    assert [each.label for each in found.instances] == ["a"]


def test_a_partition_that_two_hold_is_named() -> None:
    found = seen(heard("a", 0, 1), heard("b", 1, 2), size=3)
    assert codes(found) == ["overlap"]
    assert found.text == "a and b both say that they hold orders-1"


def test_a_partition_that_nobody_holds_is_named() -> None:
    found = seen(heard("a", 0), heard("b", 2), size=5)
    assert codes(found) == ["unheld"]
    assert found.text.startswith("no instance holds orders-1, orders-3, orders-4")
    assert found.unheld == 3


@pytest.mark.parametrize(
    "moving",
    [
        {"rebalance_seconds": 1.0},
        {"at": 100.0, "rebalanced_at": 100.0 - view.REST_REPORTS * EVERY},
        {"joined": False},
    ],
)
def test_while_something_moves_or_has_just_moved_nobody_is_compared(moving: Any) -> None:
    moved = [heard("a", 0, 1), heard("b", 1, does=1.0, backlog=999, **moving)]
    assert not {"overlap", "unheld", "slow"} & set(codes(seen(*moved, size=5)))
    assert seen(*moved, size=5).unheld is None
    assert seen(heard("a", 0, 1), heard("b", 1, at=100.0, rebalanced_at=80.0)).remarks


def test_a_rebalance_is_told_with_who_is_in_it_and_for_how_long() -> None:
    found = seen(heard("a", 0), heard("b", 1, rebalance_seconds=7.0))
    assert found.instances[1].state == "rebalancing"
    assert found.text == "b has been in a rebalance for 7 s"
    assert found.healthy, "it passes by itself"


def test_one_that_does_less_than_a_third_of_the_others_with_a_partition_is_slow() -> None:
    behind = {"backlog": 10_000}
    those = [heard("a", 0, 1, does=200.0), heard("b", 2, 3, does=220.0)]
    found = seen(*those, heard("c", 4, does=30.0, **behind))
    assert codes(found) == ["slow"]
    assert found.text == "c settles 30.0 records a second for each partition, others 105.0"
    assert seen(*those, heard("c", 4, does=36.0, **behind)).remarks == ()


def test_one_with_hardly_any_backlog_is_not_slow_however_little_it_does() -> None:
    those = [heard("a", 0, does=200.0), heard("b", 1, does=10.0, backlog=100)]
    assert seen(*those).remarks == ()
    assert codes(seen(those[0], heard("b", 1, does=10.0, backlog=101))) == ["slow"]


def test_a_diagnosis_is_told_with_whose_it_is_what_fails_first() -> None:
    warned = heard("a", 0, level="warn", code="handler-slow", text="it runs long")
    failed = heard("b", 1, level="fail", code="key-blocked", text="blocked", healthy=False)
    found = seen(warned, failed)
    assert [each.sentence for each in found.remarks] == ["b: blocked", "a: it runs long"]
    assert found.text == "b: blocked (and 1 more)"
    assert not found.healthy
    assert seen(warned).healthy


def test_different_releases_are_told() -> None:
    found = seen(heard("a", 0), heard("b", 1, software="1.1"))
    assert found.text == "they are of different releases: 1.0, 1.1"


def test_names_are_told_apart() -> None:
    same: dict[str, Any] = {"name": "pod", "host": "pod"}
    those = [
        heard("a", 0, **same, pid=7, instance="pod-7-aa"),
        heard("b", 1, **same, pid=8, instance="pod-8-bb"),
        heard("c", 2, **same, pid=8, instance="pod-8-cc"),
        heard("other", 3),
    ]
    labels = {each.report.instance: each.label for each in seen(*those).instances}
    assert labels == {
        "pod-7-aa": "pod (7)",
        "pod-8-bb": "pod (bb)",
        "pod-8-cc": "pod (cc)",
        "other-1-0": "other",
    }


@pytest.mark.parametrize(
    ("host", "url", "shown"),
    [
        ("b", "http://b:8788", True),
        ("b", "https://console.example/b", True),
        ("a", "http://127.0.0.1:8788", True),
        ("b", "http://127.0.0.1:8788", False),
        ("b", "http://localhost:8788", False),
        ("b", "javascript:alert(1)", False),
        ("b", "http://", False),
        ("b", "http://[", False),
        ("b", "/etc/passwd", False),
    ],
)
def test_only_an_address_of_the_web_that_others_reach_is_a_link(
    host: str, url: str, shown: bool
) -> None:
    (found,) = seen(heard("b", 0, host=host, url=url)).instances
    assert found.report.url == (url if shown else "")


def test_a_sum_is_known_only_where_all_have_told() -> None:
    found = seen(heard("a", 0, does=2.0, backlog=3), heard("b", 1, does=4.0, backlog=5))
    assert (found.per_second, found.backlog) == (6.0, 8)
    assert seen(heard("a", 0, backlog=3), heard("b", 1, backlog=None)).backlog is None


instances = st.lists(
    st.tuples(
        st.sets(st.integers(0, 9)),
        st.floats(0, 1_000),
        st.floats(0, 1_000),
        st.sampled_from(["starting", "running", "stopping", "stopped"]),
        st.none() | st.floats(0, 100),
    ),
    max_size=6,
)


@given(instances, st.integers(0, 10))
def test_whatever_is_heard_each_partition_is_counted_once_and_none_is_lost(
    those: list[Any], size: int
) -> None:
    told = [
        heard(f"i{at}", *numbers, ago=ago, does=does, phase=phase, rebalance_seconds=turning)
        for at, (numbers, ago, does, phase, turning) in enumerate(those)
    ]
    found = seen(*told, size=size)
    live = [each for each in found.instances if each.state != "silent"]
    held = {number for each in live for number in each.report.partitions.get("orders", ())}
    assert found.partitions == len(held)
    if found.unheld is not None:
        read = range(size if live else 0)
        assert found.unheld == len(set(read) - held)
    twice = sum(each.held_partitions for each in live) > len(held)
    rest = all(each.state == "running" for each in live)
    assert ("overlap" in codes(found)) == (twice and rest)
    assert {each.label for each in found.instances if each.state == "silent"} == {
        label for each in found.remarks if each.code == "silent" for label in each.labels
    }
    assert found.healthy == all(each.level != "fail" for each in found.remarks)


def test_a_report_of_a_status_says_who_holds_what() -> None:
    found = report("a", 2, 0)
    assert found.partitions == {"orders": (0, 2)}
    assert (found.topics, found.held_partitions) == (("orders",), 2)
