"""Derived keys in whole runs, and that checkers go by them."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Literal

import pytest

from kafka_keyshared.core.keys.extraction import NullKeys, UndecodablePolicy
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.lab.simulator.keys import DerivedKey, key_by, keyed
from kafka_keyshared.lab.simulator.plan_model import Plan
from kafka_keyshared.lab.simulator.records import SimRecord, group_of
from kafka_keyshared.lab.simulator.rng import Chance
from kafka_keyshared.lab.simulator.routings import with_routing
from kafka_keyshared.lab.simulator.run import run_seed
from kafka_keyshared.lab.simulator.seed_plan import plan_of
from kafka_keyshared.model import Retry, TopicPartition, Undecodable, UnknownFormat
from tests.simulation.told import Told
from tests.simulation.watched import Story, assert_found, assert_right, settings

STEPS = 1_000
NEVER = b"key-4"
"""A key that no function reads where some cannot be read."""


def plan_with(seed: int, function: DerivedKey, nulls: NullKeys) -> Plan:
    """The seed's own plan with these keys, of which some cannot be read for a while."""
    plan, chance = plan_of(Chance(seed)), Random(f"keys-{seed}")
    policy: UndecodablePolicy = "drop" if nulls == "reject" else "null_key"
    subs = tuple(
        replace(
            with_routing(each, chance.choice(("ring", "sticky", "filters")), chance),
            key_of=function,
            null_keys=nulls,
            undecodable=policy,
        )
        for each in plan.member.subscriptions
    )
    disturbances = {
        **plan.disturbances,
        "keys could not be read": 3.0,
        "a schema was unknown": 3.0,
    }
    member = replace(plan.member, subscriptions=subs)
    return replace(plan, member=member, disturbances=disturbances, null_share=0.2)


@pytest.mark.parametrize("header", [True, False], ids=["header", "function"])
@pytest.mark.parametrize("nulls", ["any", "one-lane", "reject"])
def test_a_whole_run_keeps_the_contract_by_derived_keys(*, header: bool, nulls: NullKeys) -> None:
    unread = 0
    for seed in (1, 2, 3):
        function = DerivedKey(header, groups=7, fails=True, lacks=True)
        outcome = run_seed(seed, STEPS, plan_with(seed, function, nulls), summed=False)
        assert outcome.violations == [], f"seed {seed}"
        unread += outcome.sometimes["keys could not be read"]
    assert bool(unread) is not header, "a header can be read always"


def test_a_schema_that_is_unknown_for_a_while_holds_records_and_sends_none_away() -> None:
    """A record that was judged would be dropped, and the checkers would find it."""
    waited = 0
    for seed in (1, 3, 5):
        plan = plan_with(seed, DerivedKey(header=False, groups=7, lacks=True), "any")
        subs = tuple(replace(each, undecodable="drop") for each in plan.member.subscriptions)
        plan = replace(
            plan,
            keys=40,
            disturbances={"a schema was unknown": 1.0, "keys could not be read": 0.3},
            member=replace(plan.member, subscriptions=subs),
        )
        outcome = run_seed(seed, STEPS, plan, summed=False)
        assert outcome.violations == [], f"seed {seed}"
        waited += outcome.sometimes["record ran once its schema was known"]
    assert waited


def test_seeds_draw_every_kind_of_key_and_leave_nothing_blocked_for_good() -> None:
    chance = Random(1)
    subs = [SubscriptionSettings(dlq=dlq) for dlq in (True, False)]
    drawn = [keyed(each, chance) for each in subs * 100]
    for each in drawn:
        each.check()
    functions = [each.key_of for each in drawn if isinstance(each.key_of, DerivedKey)]
    assert {each.header for each in functions} == {True, False}
    assert any(each.fails and not each.header for each in functions)
    assert any(each.lacks for each in functions)
    assert any(each.key_of is None for each in drawn)
    assert {each.null_keys for each in drawn} == {"any", "one-lane", "reject"}
    assert {each.undecodable for each in drawn} == {"drop", "dead_letter", "null_key"}


# --- what the keys are ---


def record(own: bytes | None) -> SimRecord:
    return SimRecord(TopicPartition("t", 0), 0, (own, b"value", 0))


def test_a_header_is_what_its_producer_wrote_whatever_a_handler_does_to_the_key() -> None:
    function, each = DerivedKey(header=True), record(b"key-12")
    each.set_key(b"other")
    assert function(each) == group_of(b"key-12") == function.of(b"key-12")
    assert function.of_all([each, record(None)]) == [function(each), None]


def test_a_function_reads_some_keys_never_and_some_not_just_now() -> None:
    function = DerivedKey(header=False, groups=7, fails=True)
    assert function(record(b"key-8")) == function(record(b"key-1")) == b"key-1"
    with pytest.raises(Undecodable):
        function(record(NEVER))
    function.away = True
    with pytest.raises(Retry):
        function.of_all([record(b"key-1")])
    assert function(record(b"key-2")) == b"key-2"
    function.away, function.unregistered = False, True
    with pytest.raises(UnknownFormat, match="no such schema"):
        function(record(b"key-2"))
    assert function(record(b"key-1")) == b"key-1"


def test_a_function_finds_no_key_in_some_records_that_have_one_of_their_own() -> None:
    function = DerivedKey(header=False, groups=7, lacks=True)
    assert [function(record(b"key-%d" % number)) for number in (8, 9, 10)] == [
        b"key-1",
        None,
        b"key-3",
    ]


def test_what_cannot_be_read_has_a_null_key_where_that_is_wanted() -> None:
    function = DerivedKey(header=False, fails=True)
    policies: tuple[Literal["null_key", "drop"], ...] = ("null_key", "drop")
    as_null, dropped = (settings(key_of=function, undecodable=each) for each in policies)
    assert key_by(as_null, NEVER) is None
    with pytest.raises(Undecodable):
        key_by(dropped, NEVER)


# --- the checkers ---


def of_keys(*keys: bytes | None, then: Story) -> Story:
    """Records of these own keys, all delivered to member 1."""

    def story(told: Told) -> None:
        told.write(*[each if each is None else each.decode() for each in keys])
        told.join(1)
        told.assign(1)
        told.deliver(1, *range(len(keys)))
        then(told)

    return story


def overtaken(told: Told) -> None:
    told.hand(1, 0, 1)
    told.begin(1, 1)


def test_own_keys_that_are_one_by_their_function_are_one_lane() -> None:
    story = of_keys(b"key-1", b"key-8", then=overtaken)
    assert_right(story)
    chosen = settings(key_of=DerivedKey(header=False, groups=7), undecodable="drop")
    assert_found("OrderChecker", "before t-0@0", story, chosen)


def test_null_keys_that_are_one_lane_are_kept_in_order() -> None:
    story = of_keys(None, None, then=overtaken)
    assert_right(story)
    assert_found("OrderChecker", "before t-0@0", story, settings(null_keys="one-lane"))


def run_it(told: Told) -> None:
    told.hand(1, 0)
    told.begin(1, 0)


@pytest.mark.parametrize(
    ("policy", "checker", "words"),
    [
        ("dead_letter", "OrderChecker", "although it waits for its dead letter"),
        ("block", "OrderChecker", "although it is blocked"),
        ("drop", "NoRepeats", "dropped for its key at"),
    ],
)
def test_a_worker_that_runs_what_has_no_readable_key_is_found(
    policy: UndecodablePolicy, checker: str, words: str
) -> None:
    story = of_keys(NEVER, then=run_it)
    function = DerivedKey(header=False, fails=True)
    assert_right(story, settings(key_of=function, undecodable="null_key"))
    chosen = settings(key_of=function, undecodable=policy, dlq=True)
    assert_found(checker, words, story, chosen)


def test_a_letter_for_an_unreadable_key_may_come_before_it_is_said_where_to_begin() -> None:
    def story(told: Told) -> None:
        told.write(NEVER.decode())
        told.join(1)
        told.assign(1, position=None)
        told.deliver(1, 0)
        told.letter(1, 0)

    chosen = settings(
        key_of=DerivedKey(header=False, fails=True), undecodable="dead_letter", dlq=True
    )
    assert_right(story, chosen)


def test_what_is_dropped_for_its_key_may_wait_behind_one_that_cannot_be_read_now() -> None:
    """So a clean stop has not said of it, and nothing of it is lost."""

    def stopped(told: Told) -> None:
        told.stop(1)

    story = of_keys(None, then=stopped)
    assert_right(story, settings(null_keys="reject", undecodable="drop"))
