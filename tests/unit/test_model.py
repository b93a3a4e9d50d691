"""Verdicts as values: what a delay may be."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from kafka_keyshared.clock import Clock
from kafka_keyshared.core.contract.outcomes import Disposition
from kafka_keyshared.executors.handling.failure import describe
from kafka_keyshared.model import DeadLetter, Retry

NO_DELAYS = [
    Decimal("NaN"),
    Decimal("sNaN"),
    Decimal("Infinity"),
    float("nan"),
    float("inf"),
    -1,
    Decimal("-0.5"),
    "5",
    timedelta(seconds=5),
    1 + 0j,
    10**400,
    10**5000,
    365 * 24 * 3600 + 1,
    1_795_312_864,  # a time in place of a delay
]


@pytest.mark.parametrize("after", [0, 1, 0.5, Decimal("0.5"), Fraction(1, 2), 365 * 24 * 3600])
def test_a_delay_is_any_real_number_up_to_a_year(after: Any) -> None:
    delay = describe(Retry(after), Clock()).after
    assert type(delay) is float
    assert delay == after
    assert Retry(after).after == after


@pytest.mark.parametrize("after", NO_DELAYS, ids=lambda after: f"{type(after).__name__}")
def test_anything_else_is_refused_where_it_is_said(after: Any) -> None:
    with pytest.raises(ValueError, match=r"Retry\(after=.*: give the delay in seconds"):
        Retry(after)


@pytest.mark.parametrize("after", NO_DELAYS, ids=lambda after: f"{type(after).__name__}")
def test_a_retry_that_got_one_all_the_same_is_a_failed_attempt_that_names_it(after: Any) -> None:
    class NotYet(Retry):
        def __init__(self) -> None:
            self.after = after

    failure = describe(NotYet(), Clock())
    assert (failure.disposition, failure.after) == (Disposition.ERROR, None)
    assert failure.error_type == "ValueError"
    assert failure.message.startswith("Retry(after=")


def test_a_retry_says_what_it_asks_for_and_a_subclass_what_it_was_given() -> None:
    class NotYet(Retry):
        def __init__(self, order: str) -> None:
            self.order = order

    assert str(Retry(60)) == "to be tried again after 60 s"
    assert str(Retry()) == "to be tried again after the back-off"
    assert str(NotYet("o-1")) == "o-1"


def test_a_verdict_of_a_subclass_that_never_called_its_base_counts() -> None:
    class NotYet(Retry):
        def __init__(self, order: str) -> None:
            self.order = order

    class Never(DeadLetter):
        def __init__(self, order: str) -> None:
            self.order = order

    failure = describe(NotYet("o-1"), Clock())
    assert (failure.disposition, failure.after) == (Disposition.RETRY, None)
    assert describe(Never("o-1"), Clock()).disposition is Disposition.DEAD_LETTER
    assert Never("o-1").reason == ""
