"""Failed attempts in the log: the first of each kind whole, then counts; never a flood."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_keyshared.core.contract.outcomes import Disposition, Failure
from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.core.telemetry.bursts import INTERVAL, TRACEBACKS_A_SECOND
from kafka_keyshared.core.telemetry.failure_kinds import KINDS_MAX
from kafka_keyshared.executors.notice_text import Level, NoticeLine
from tests.support.core_harness import Harness
from tests.support.records import GIVE_UP, NOT_NOW, P0, record

STACK = '  File "/app/app.py", line 12, in handle\n    total = order["customer_id"]\n'
MISSING = Failure(Disposition.ERROR, "KeyError", "'customer_id'", STACK, 0, 0.0, None, "app.py:12")
SLOW = Failure(Disposition.ERROR, "TimeoutError", "", STACK, 0, 0.0, None, "app.py:30")
ENDED = Failure(Disposition.ERROR, "RuntimeError", "the thread has ended", "", 0)
BEATS = int(INTERVAL / 0.5) + 1


def failing(
    *failures: Sequence[Failure], attempts: int = 5, dlq: bool = False, key: str | None = None
) -> Harness:
    """For each, a record of its own key whose attempts fail so, and then succeed."""
    retry = RetryPolicy(attempts=attempts)
    settings = SubscriptionSettings(retry=retry, on_exhausted="block")
    if dlq:
        settings = SubscriptionSettings(retry=retry, on_exhausted="dead_letter", dlq=True)
    harness = Harness(settings)
    harness.assign()
    keys = [f"key-{offset}" if key is None else key for offset in range(len(failures))]
    harness.fetch(*(record(offset, each) for offset, each in enumerate(keys)))
    harness.work(dict(enumerate(failures)))
    return harness


def told(harness: Harness, part: str = "attempt") -> list[NoticeLine]:
    return [each for each in harness.notices if part in f"{each.text}\n{each.traceback}"]


def test_the_first_failure_is_told_at_once_with_record_key_place_and_traceback() -> None:
    harness = failing([MISSING])
    (line,) = told(harness)
    assert line.level is Level.WARNING
    assert line.text == (
        "orders-0@0 (key b'key-0'), attempt 1 of 5: KeyError at app.py:12: 'customer_id'; "
        "it runs again in 0.1 s"
    )
    assert line.about == (P0, 0, b"key-0")
    assert line.traceback.split("\n") == [
        "Traceback (most recent call last):",
        *STACK.splitlines(),
        "KeyError: 'customer_id'",
    ]


def test_after_that_a_line_in_ten_seconds_counts_them_by_kind_and_names_the_first() -> None:
    harness = failing(*([[MISSING]] * 20), [SLOW], *([[MISSING]] * 7), [SLOW], [SLOW])
    assert len(told(harness, "Traceback")) == 2, "one for each kind"
    harness.beat(BEATS)
    (line,) = told(harness, "more attempts failed")
    assert line.text.startswith(
        "28 more attempts failed in 10 s (KeyError at app.py:12 26, TimeoutError at app.py:30 2), "
        "the last 10 s ago, the first: orders-0@"
    )
    assert line.traceback == ""
    assert line.about is None, "it stands for several"
    harness.beat(BEATS)
    assert len(told(harness)) == 3, "nothing more happened since"


def test_what_follows_is_left_out_of_a_line_that_comes_when_it_is_over() -> None:
    """By then the next attempt may have been made, and the key be blocked."""
    harness = failing([MISSING], [MISSING], [MISSING])
    harness.beat(BEATS)
    (line,) = told(harness, "2 more attempts failed")
    assert line.text.endswith("attempt 1 of 5: KeyError at app.py:12: 'customer_id'")
    harness.fetch(record(3, "late"), record(4, "later"))
    harness.work({3: [MISSING]})
    harness.work({4: [MISSING]})
    harness.beat(BEATS)
    (late,) = told(harness, "s ago: ")
    assert "it runs again" not in late.text
    assert late.about is not None


def test_a_failure_after_a_quiet_time_is_told_at_once_in_one_line() -> None:
    harness = failing([MISSING, MISSING])
    harness.beat(BEATS)
    harness.work({0: [MISSING]})
    _first, again = told(harness)
    assert again.text.startswith("orders-0@0 (key b'key-0'), attempt 2 of 5: KeyError at app.py:12")
    assert again.traceback == ""


def test_a_line_says_what_follows() -> None:
    for harness, follows in (
        (failing([MISSING], attempts=1), "its key is blocked"),
        (failing([GIVE_UP], dlq=True), "it goes to the dead-letter topic"),
        (failing([MISSING]), "it runs again in 0.1 s"),
    ):
        assert follows in told(harness)[0].text


def test_a_retry_that_its_handler_asked_for_is_no_warning() -> None:
    harness = failing([NOT_NOW], [NOT_NOW], [NOT_NOW])
    (line,) = told(harness)
    assert line.level is Level.INFO
    assert line.text.endswith("it runs again in 3 s")
    harness.beat(BEATS)
    assert told(harness, "2 more attempts asked to be made again in 10 s")


def test_one_that_asked_once_too_often_is() -> None:
    harness = failing([NOT_NOW], attempts=1)
    assert told(harness)[0].level is Level.WARNING


def test_a_key_that_blocks_shows_why_with_the_traceback_once_per_kind() -> None:
    harness = failing([MISSING], [MISSING], [SLOW], attempts=1)
    harness.beat(BEATS)
    first, *more = told(harness, "is blocked at")
    assert "(1 attempt, last: KeyError at app.py:12: 'customer_id')" in first.text
    assert first.traceback == (
        f"Traceback (most recent call last):\n{STACK}KeyError: 'customer_id'"
    )
    assert [each.traceback.count("Traceback") for each in more] == [1, 0], "the other kind's"
    assert more[0].traceback.endswith("TimeoutError")


def test_of_many_kinds_that_block_at_once_a_few_are_told_whole_the_others_another_time() -> None:
    several = kinds(TRACEBACKS_A_SECOND + 15)
    harness = failing(*([each] for each in several), attempts=1)
    assert len(told(harness, "Traceback")) == TRACEBACKS_A_SECOND
    for first in (25, 50, 75, 100, 125):
        harness.beat(2)
        harness.fetch(*(record(first + n, f"key-{first + n}") for n in range(25)))
        harness.work({first + n: [each] for n, each in enumerate(several)})
    blocked = [each for each in told(harness, "is blocked at") if each.traceback]
    assert len(blocked) == len(several), "each of them once"


def test_a_failure_without_a_place_has_no_empty_traceback() -> None:
    (line,) = told(failing([ENDED]))
    assert "RuntimeError: the thread has ended" in line.text
    assert line.traceback == ""


def kinds(count: int) -> list[Failure]:
    return [
        Failure(Disposition.ERROR, f"Error{n}", "", STACK, 0, 0.0, None, "app.py:1")
        for n in range(count)
    ]


def test_of_many_kinds_at_once_a_few_are_told_whole_and_the_others_when_they_come_again() -> None:
    several = kinds(TRACEBACKS_A_SECOND + 15)
    harness = failing(*([each] for each in several))
    assert len(told(harness, "Traceback")) == TRACEBACKS_A_SECOND
    harness.beat(BEATS)
    assert told(harness, "15 more attempts failed in 10 s (Error")
    for first in (25, 50):
        harness.fetch(*(record(first + n, f"key-{first + n}") for n in range(25)))
        harness.work({first + n: [each] for n, each in enumerate(several)})
        harness.beat(BEATS)
    assert len(told(harness, "Traceback")) == len(several), "each of them once"


def test_kinds_without_end_are_told_whole_so_often_and_then_counted() -> None:
    harness = Harness(SubscriptionSettings(retry=RetryPolicy(attempts=5), on_exhausted="block"))
    harness.assign()
    for offset, each in enumerate(kinds(KINDS_MAX + 30)):
        harness.fetch(record(offset, f"key-{offset}"))
        harness.work({offset: [each]})
        harness.beat()
    whole = told(harness, "Traceback")
    assert len(whole) == KINDS_MAX
    assert f"(the last of {KINDS_MAX} kinds logged with a traceback)" in whole[-1].text
    harness.beat(BEATS)
    (*_, line) = told(harness, "more attempts failed in 10 s (others ")
    assert "Error" in line.text


def test_of_many_kinds_a_line_names_the_most_frequent() -> None:
    kinds = [
        Failure(Disposition.ERROR, f"Error{n}", "", STACK, 0, 0.0, None, f"app.py:{n}")
        for n in range(8)
    ]
    harness = failing(*([each] for each in kinds), *([each] for each in kinds))
    harness.beat(BEATS)
    (line,) = told(harness, "more attempts")
    assert line.text.count("Error") == 6, "five by name, and that of the first"
    assert "others 3)" in line.text


def test_neither_key_nor_message_does_anything_to_a_terminal() -> None:
    evil = "\x1b[2J\x07bell\nand\ttabs " + "x" * 5_000
    error = Failure(Disposition.ERROR, "E", evil, STACK, 0, 0.0, None, "app.py:1")
    harness = failing([error], [error], key="\x1b[2J")
    harness.beat(BEATS)
    for each in told(harness):
        assert each.text.isprintable()
        assert len(each.text) < 500
        assert "\x1b" not in each.traceback
        assert "\x07" not in each.traceback


def test_a_lease_given_back_is_no_failure() -> None:
    back = Failure(Disposition.GIVEN_BACK, "MemberLeftError", "member-1 has left", "", 0)
    assert not told(failing([back]))
