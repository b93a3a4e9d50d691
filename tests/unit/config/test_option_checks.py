"""Without reliability: options that say how a record is tracked are refused by their names."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_keyshared.config.core_settings import subscription_settings
from kafka_keyshared.config.option_checks import NEEDS_TRACKING
from kafka_keyshared.config.options import Options, RetryOptions
from kafka_keyshared.errors import ConfigError

SAID: dict[str, tuple[Any, str]] = {
    "dlq": ("letters", "dlq='letters'"),
    "dlq_create": (True, "dlq_create=True"),
    "dlq_format": ("avro", "dlq_format='avro'"),
    "on_exhausted": ("drop", "on_exhausted='drop'"),
    "retry": (RetryOptions(attempts=3, backoff=1.0), "retry.attempts=3, retry.backoff=1.0"),
    "undecodable": ("block", "undecodable='block'"),
    "one_in_flight_per_key": (True, "one_in_flight_per_key=True"),
    "commit_interval": (5.0, "commit_interval=5.0"),
    "ack_timeout": (9.0, "ack_timeout=9.0"),
    "on_stuck": ("exit", "on_stuck='exit'"),
    "detach_after": (0.2, "detach_after=0.2"),
    "on_evict": ("ack", "on_evict='ack'"),
    "workers": ("pull", "workers='pull' (members acknowledge)"),
}


@pytest.mark.parametrize("name", SAID)
def test_what_needs_tracking_is_refused_by_name(name: str) -> None:
    value, said = SAID[name]
    with pytest.raises(ConfigError) as refused:
        subscription_settings(Options(**{name: value}, delivery="at-most-once"))
    assert f"so it does not work with {said}: leave these out" in str(refused.value)
    assert "leave out delivery='at-most-once'" in str(refused.value)


def test_each_of_them_is_tried() -> None:
    assert SAID.keys() - {"workers"} == set(NEEDS_TRACKING)


def test_all_of_them_are_named_at_once() -> None:
    with pytest.raises(ConfigError, match="dlq=True, ack_timeout=3\\.0: leave"):
        subscription_settings(Options(dlq=True, ack_timeout=3.0, delivery="at-most-once"))


@pytest.mark.parametrize("undecodable", [None, "drop", "null_key"])
def test_what_needs_no_tracking_may_be_said(undecodable: Any) -> None:
    options = Options(
        workers=3, undecodable=undecodable, prefetch_records=9, delivery="at-most-once"
    )
    settings = subscription_settings(options)
    assert not settings.at_least_once
    assert settings.when_undecodable() == (undecodable or "drop")


def test_the_default_delivery_is_at_least_once() -> None:
    assert subscription_settings(Options()).at_least_once
