"""The routing as a user gives it: in a file, in the environment, in a program, at a join."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafka_keyshared import KeyShared, never
from kafka_keyshared.config import Options, load_file
from kafka_keyshared.config.core_settings import subscription_settings
from kafka_keyshared.config.layers import layered
from kafka_keyshared.core.routing.modes import RoutingSettings
from kafka_keyshared.errors import ConfigError

CONF = {"bootstrap.servers": "localhost:9", "group.id": "g"}


def test_a_file_gives_all_of_it(tmp_path: Path) -> None:
    path = tmp_path / "keyshared.toml"
    path.write_text(
        'routing = "sticky"\non_unmatched = "hold"\nworkers = 2\n'
        '[ranges]\nworker-0 = "0-9,20-29"\nworker-1 = "10-19"\n'
        '[filters]\nworker-1 = ["eu-*"]\n'
    )
    options = Options(**load_file(path).options)
    assert subscription_settings(options).routing == RoutingSettings(
        "sticky",
        {"worker-0": ((0, 9), (20, 29)), "worker-1": ((10, 19),)},
        {},
        {"worker-1": ["eu-*"]},
        "hold",
    )


def test_how_keys_change_hands_is_given_too(tmp_path: Path) -> None:
    usual = subscription_settings(Options())
    assert (usual.unblocking_interval, usual.new_workers_wait) == (0.0, False)
    path = tmp_path / "keyshared.toml"
    path.write_text("unblocking_interval = 0.25\nnew_workers_wait = true\n")
    from_file = subscription_settings(Options(**load_file(path).options))
    given = {"KEYSHARED_UNBLOCKING_INTERVAL": "0.25", "KEYSHARED_NEW_WORKERS_WAIT": "true"}
    from_env = subscription_settings(Options(**layered(None, given).options))
    in_program = KeyShared(CONF, ["orders"], unblocking_interval=0.25, new_workers_wait=True)
    for each in (from_file, from_env, in_program.subscription):
        assert (each.unblocking_interval, each.new_workers_wait) == (0.25, True)


def test_the_environment_gives_what_is_no_table() -> None:
    given = {"KEYSHARED_ROUTING": "exclusive", "KEYSHARED_DLQ": "true"}
    subscription = subscription_settings(Options(**layered(None, given).options))
    assert subscription.routing.mode == "exclusive"
    assert subscription.on_exhausted == "block", "nothing goes on without a record, letters or not"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"routing": "hash"}, r"routing='hash': give 'auto-split' or 'exclusive' or 'ring' or"),
        ({"routing": "sticky", "ranges": {"w": "9-0"}}, r"ranges of worker 'w': the range 9-0 is"),
        ({"weights": {"worker-0": 0}}, r"weights="),
        (
            {"routing": "exclusive", "on_exhausted": "drop"},
            r"on_exhausted='drop' goes on behind a record",
        ),
        ({"filters": {"worker-0": ["x"], "worker-1": ["y"]}}, r"give on_unmatched='skip'"),
        ({"unblocking_interval": -1}, r"unblocking_interval=-1: give a number from 0 to 604800"),
        ({"on_unmatched": "drop"}, r"on_unmatched='drop': give 'error' or 'hold' or 'skip'"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_consumed(
    given: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        KeyShared(CONF, ["orders"], workers=2, **given)


class Stateful:
    def handle(self, _record: Any) -> None: ...

    def release(self, _slots: Any) -> object: ...

    def adopt(self, _slots: Any, _state: object) -> None: ...


def test_a_handler_with_state_by_slot_is_refused_where_a_key_has_no_worker() -> None:
    app = KeyShared(CONF, ["orders"], routing="unordered")
    with pytest.raises(
        ConfigError, match=r"routing='unordered', and a handler with release\(\) and adopt\(\)"
    ):
        app.handler(Stateful)
    assert not app.subscription.hands_over, "it is as if it had not been called"
    KeyShared(CONF, ["orders"], routing="exclusive").handler(Stateful)


def test_exceptions_that_skip_the_attempts_are_refused_where_order_is_required() -> None:
    given: dict[str, Any] = {"dlq": True, "dead_letter_on": (ValueError,)}
    said = r"dead_letter_on=\('ValueError',\) goes on behind a record that was not done, and the "
    with pytest.raises(ConfigError, match=f"{said}routing 'exclusive' requires order"):
        KeyShared(CONF, ["orders"], routing="exclusive", **given)
    KeyShared(CONF, ["orders"], routing="ring", **given)
    without_letters: dict[str, Any] = {**given, "dlq": False}
    KeyShared(CONF, ["orders"], routing="exclusive", **without_letters)  # then it blocks at once


@pytest.mark.parametrize("given", [ValueError, [ValueError], (ValueError, 7), "ValueError"])
def test_dead_letter_on_takes_a_tuple_of_exception_classes(given: Any) -> None:
    with pytest.raises(ConfigError, match="give a tuple of exception classes"):
        KeyShared(CONF, ["orders"], dlq=True, dead_letter_on=given)


@pytest.mark.parametrize(
    "given",
    [
        {"dead_letter_on": (ValueError,), "retry_on": {ValueError: never}},
        {"dead_letter_on": (ValueError,), "wait_on": [ValueError]},
        {"retry_on": {(KeyError, ValueError): never}, "wait_on": ["builtins.ValueError"]},
    ],
)
def test_a_class_has_one_rule(given: dict[str, Any]) -> None:
    one, other = given
    with pytest.raises(ConfigError, match=f"{one} and {other} both have ValueError; leave it out"):
        KeyShared(CONF, ["orders"], dlq=True, **given)


def test_what_runs_is_told_with_its_order() -> None:
    said = KeyShared(CONF, ["orders"], workers=2, routing="exclusive").banner()
    assert "one order for everything" in said
    assert "no order" in KeyShared(CONF, ["orders"], routing="unordered").banner()


# --- members ---


def pulled(**given: Any) -> KeyShared:
    return KeyShared(CONF, ["orders"], workers="pull", **given)


def test_a_member_says_what_it_takes_when_it_joins() -> None:
    app = pulled(routing="sticky", on_unmatched="hold")
    app.join("a", ranges="0-99,200-299", filters=["x*"])
    app.join("b", ranges=[(100, 199)])
    app.join("c")
    assert app.subscription.routing.ranges == {"a": ((0, 99), (200, 299)), "b": ((100, 199),)}
    assert app.subscription.routing.filters == {"a": ["x*"]}


def test_a_member_whose_range_is_anothers_is_refused_at_the_call_with_both_names() -> None:
    app = pulled(routing="sticky", on_unmatched="hold")
    app.join("a", ranges="0-99")
    with pytest.raises(ConfigError, match=r"0\.\.99 of worker 'a' and 50\.\.60 of worker 'b' over"):
        app.join("b", ranges="50-60")
    app.join("b", ranges="100-160")


@pytest.mark.parametrize(
    ("routing", "given", "said"),
    [
        ("ring", {"ranges": "0-9"}, "ranges are given and routing='ring' takes none"),
        ("exclusive", {"filters": ["x"]}, "filters are given for m and routing='exclusive'"),
        ("sticky", {"ranges": []}, "no range of slots is given"),
        ("sticky", {"ranges": "0-65536"}, "out of bounds"),
        ("ring", {"filters": "x*"}, "give a list of patterns"),
    ],
)
def test_what_a_member_cannot_have_is_refused_and_it_has_not_joined(
    routing: Any, given: dict[str, Any], said: str
) -> None:
    app = pulled(routing=routing)
    with pytest.raises(ConfigError, match=said):
        app.join("m", **given)
    app.join("m")  # the name is free


def test_members_that_leave_records_to_nobody_are_refused_at_the_start() -> None:
    app = pulled()
    app.join("a", filters=["x"])
    with pytest.raises(ConfigError, match="no worker takes every key, each of a has filters"):
        app.run()
