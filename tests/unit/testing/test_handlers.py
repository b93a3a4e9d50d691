"""Handlers without Kafka: what becomes of each record, by the package's own rules."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import pytest
from confluent_kafka.serialization import StringDeserializer

from kafka_keyshared import (
    Ack,
    Attempt,
    Backoff,
    ConfigError,
    DeadLetter,
    Drop,
    KeyShared,
    Output,
    Record,
    Retry,
    attempt_of,
    never,
)
from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.testing import HandlerTest, Result, record, run_handler


class FlakyError(Exception):
    """A failure that goes away."""


def obeys(given: Record) -> Any:
    """Do what the value says."""
    word: bytes = given.value() or b"ok"
    verdicts = {b"ack": Ack(), b"drop": Drop(), b"letter": DeadLetter("no"), b"class": Drop}
    if word == b"bad":
        raise ValueError("cannot read it")
    if word == b"raise":
        raise DeadLetter("said so")
    return verdicts.get(word)


def outcomes(results: list[Result]) -> list[str]:
    return [each.outcome for each in results]


def fails(times: int, *, after: float | None = None) -> Any:
    """Fail the first attempts."""
    left = [times]

    def handle(_: Record) -> None:
        left[0] -= 1
        if left[0] >= 0:
            raise FlakyError("not yet") if after is None else Retry(after=after)

    return handle


def test_returning_and_verdicts_settle_at_the_first_attempt() -> None:
    words = ["ok", "ack", "drop", "class", "letter", "raise", None]
    results = run_handler(obeys, [(f"k{n}", word) for n, word in enumerate(words)], dlq=True)
    assert outcomes(results) == [
        "done",
        "done",
        "dropped",
        "dropped",
        "dead_lettered",
        "dead_lettered",
        "done",
    ]
    assert {each.attempts for each in results} == {1}
    assert [each.reason for each in results[3:6]] == ["", "DeadLetter: no", "DeadLetter: said so"]


def test_retries_take_the_policys_delays_and_no_time() -> None:
    [result] = run_handler(fails(3), [("a", "")], retry={"backoff": 60.0, "backoff_max": 200.0})
    assert (result.outcome, result.attempts) == ("done", 4)
    assert result.called_at == (0.0, 60.0, 180.0, 380.0)
    assert [each.error_type for each in result.failures] == ["FlakyError"] * 3
    assert isinstance(result.error, FlakyError)


def test_a_handler_may_say_when_to_try_again() -> None:
    [result] = run_handler(fails(2, after=7.5), [("a", "")])
    assert result.called_at == (0.0, 7.5, 15.0)


def test_a_key_waits_for_its_retry_and_other_keys_do_not() -> None:
    with HandlerTest(fails(1)) as test:
        results = test.run([("a", "1"), ("a", "2"), ("b", "3"), (None, "4")])
    assert [each.value() for each in test.calls] == [b"1", b"3", b"4", b"1", b"2"]
    assert [each.called_at for each in results] == [(0.0, 0.1), (0.1,), (0.0,), (0.0,)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["blocked", "waiting", "done"]),
        ({"dlq": True}, ["dead_lettered", "done", "done"]),
        ({"on_exhausted": "drop"}, ["dropped", "done", "done"]),
        ({"dlq": True, "on_exhausted": "block"}, ["blocked", "waiting", "done"]),
    ],
)
def test_what_fails_for_good_goes_the_way_of_the_policy(
    options: dict[str, Any], expected: list[str]
) -> None:
    results = run_handler(obeys, [("a", "bad"), ("a", "ok"), ("b", "ok")], **options)
    assert outcomes(results) == expected
    assert [each.attempts for each in results] == [5, 0 if "waiting" in expected else 1, 1]
    assert results[0].reason == "ValueError: cannot read it"


def test_without_a_dead_letter_topic_a_dead_letter_blocks_its_key() -> None:
    [result] = run_handler(obeys, [("a", "letter")])
    assert (result.outcome, result.attempts, result.dead_letter) == ("blocked", 1, None)


def test_a_dead_letter_is_the_record_with_what_happened_to_it() -> None:
    given = record("a", "bad", headers={"trace": "7"}, topic="orders", partition=2, offset=40)
    [result] = run_handler(obeys, [given], dlq=True, retry={"attempts": 3})
    letter = result.dead_letter
    assert letter is not None
    assert (letter.topic(), letter.key(), letter.value()) == ("orders.dlq", b"a", b"bad")
    headers = dict(letter.headers() or [])
    assert headers["trace"] == b"7"
    assert headers["keyshared.attempts"] == b"3"
    assert headers["keyshared.source.offset"] == b"40"
    assert headers["keyshared.error.type"] == b"ValueError"
    assert b"cannot read it" in headers["keyshared.error.stack"]


def test_exceptions_that_skip_the_attempts() -> None:
    [result] = run_handler(obeys, [("a", "bad")], dlq=True, dead_letter_on=(ValueError,))
    assert (result.outcome, result.attempts) == ("dead_lettered", 1)


def test_errors_are_retried_by_their_class_and_the_handler_knows_its_attempt() -> None:
    attempts: list[Attempt] = []

    def handle(given: Record) -> None:
        attempts.append(attempt_of(given))
        if len(attempts) <= 6:
            raise ConnectionResetError("away")
        raise KeyError("id")

    [result] = run_handler(
        handle,
        [("a", "bad")],
        dlq=True,
        retry={"attempts": 2, "backoff": 5},
        retry_on={OSError: Backoff(forever=True, first=1, max=10), KeyError: never},
        wait_on=[TimeoutError],
    )
    assert result.outcome == "dead_lettered"
    assert result.called_at == (0, 1, 3, 7, 15, 25, 35)
    assert [(each.number, each.of) for each in attempts] == [
        (1, 2),
        *((number, None) for number in range(2, 8)),
    ]
    assert {each.last_error for each in attempts[1:]} == {"ConnectionResetError: away"}


def test_a_record_that_would_be_tried_for_ever_ends_the_test_with_a_reason() -> None:
    def handle(given: Record) -> None:
        raise ConnectionError("away")

    with pytest.raises(KeySharedError, match=r"has failed 1,000 times .* have the handler succeed"):
        run_handler(handle, [("a", "x")], retry_on={ConnectionError: Backoff(forever=True)})


def test_outside_a_handler_there_is_no_attempt() -> None:
    with pytest.raises(KeySharedError, match=r"ask attempt_of\(record\) in the handler"):
        attempt_of(record("a", "x"))


@pytest.mark.parametrize(
    ("options", "outcome"),
    [({"dlq": True}, "dead_lettered"), ({}, "blocked"), ({"undecodable": "drop"}, "dropped")],
)
def test_a_record_without_a_readable_key_never_reaches_the_handler(
    options: dict[str, Any], outcome: str
) -> None:
    seen: list[Record] = []
    given = [(None, "1"), ("a", "2")]
    lost, kept = run_handler(seen.append, given, null_keys="reject", **options)
    assert (lost.outcome, lost.attempts, kept.outcome) == (outcome, 0, "done")
    assert [each.value() for each in seen] == [b"2"]
    assert outcome == "dropped" or "its key is null" in lost.reason


def test_a_coroutine_is_a_failed_attempt() -> None:
    # Looks like a plain function until it is called, as one behind a decorator does.
    def later(given: Record) -> Any:
        return deferred(given)

    [result] = run_handler(later, [("a", "")], retry={"attempts": 2})
    assert (result.outcome, result.attempts) == ("blocked", 2)
    assert result.reason.startswith("TypeError: the handler returned a coroutine, of which nothing")
    assert result.error is None, "the handler itself raised nothing"


class Counting:
    """Counts, and says when it is closed."""

    closed: ClassVar[list[int]] = []

    def __init__(self) -> None:
        self.seen = 0

    def handle(self, _: Record) -> None:
        self.seen += 1

    def close(self) -> None:
        self.closed.append(self.seen)


def test_a_class_has_one_instance_that_lives_until_the_end() -> None:
    Counting.closed.clear()
    with HandlerTest(Counting) as test:
        test.run([(f"k{number}", "") for number in range(1_500)])
        test.run([("a", "")])
        assert Counting.closed == []
    assert Counting.closed == [1_501]


def test_more_workers_have_an_instance_each() -> None:
    Counting.closed.clear()
    run_handler(Counting, [(f"k{number}", "") for number in range(100)], workers=3)
    assert len(Counting.closed) == 3
    assert sum(Counting.closed) == 100
    assert min(Counting.closed) > 0


def test_handlers_run_in_the_tests_own_thread() -> None:
    here = threading.get_ident()
    seen: list[int] = []
    run_handler(lambda _: seen.append(threading.get_ident()), [("a", ""), ("b", "")], workers=2)
    assert seen == [here, here]


def test_offsets_rise_within_a_partition() -> None:
    given = [record("a"), record("b"), record("c", offset=10), record("d"), record("e", offset=3)]
    results = run_handler(lambda _: None, [*given, record("f", partition=1, offset=5)])
    assert [each.record.offset() for each in results] == [0, 1, 10, 11, 12, 5]
    assert results[2].record is given[2], "one that fits is not made again"


def test_what_was_blocked_stays_blocked_and_its_key_closed() -> None:
    with HandlerTest(obeys) as test:
        assert outcomes(test.run([("a", "bad")])) == ["blocked"]
        assert outcomes(test.run([("a", "ok"), ("b", "ok")])) == ["waiting", "done"]


def test_a_window_full_of_blocked_records_stops_its_partition() -> None:
    # Four of a window of 16 fill the quarter that blocked keys may have.
    given = [(f"k{number}", "bad") for number in range(6)] + [("x", "ok")] * 20
    with HandlerTest(obeys, window_records=16, retry={"attempts": 1}) as test:
        results = test.run(given)
    assert "waiting" in outcomes(results)
    assert outcomes(results).count("blocked") >= 4


def test_an_apps_own_settings_and_handler_are_used() -> None:
    conf = {"bootstrap.servers": "unused:1", "group.id": "billing"}
    app = KeyShared(conf, ["orders"], dlq="graveyard", retry={"attempts": 2})
    app.handler(obeys)
    [result] = run_handler(app, [("a", "bad")])
    assert (result.outcome, result.attempts) == ("dead_lettered", 2)
    assert result.dead_letter is not None
    assert result.dead_letter.topic() == "graveyard"
    assert ("keyshared.source.group", b"billing") in (result.dead_letter.headers() or [])
    with pytest.raises(ConfigError, match="leave them out"):
        HandlerTest(app, workers=2)


def test_decoded_values_reach_the_handler_and_raw_ones_the_dead_letter() -> None:
    seen: list[Any] = []
    results = run_handler(
        lambda each: seen.append(each.value()),
        [("a", "text"), ("b", b"\xff")],
        value_deserializer=StringDeserializer("utf_8"),
        dlq=True,
    )
    assert seen == ["text"]
    assert outcomes(results) == ["done", "dead_lettered"]
    assert results[1].dead_letter is not None
    assert results[1].dead_letter.value() == b"\xff"


async def deferred(_: Record) -> None: ...


def generating(_: Record) -> Any:
    yield


@pytest.mark.parametrize(
    ("handler", "options", "why"),
    [
        (deferred, {"workers": 2}, "async def"),
        (generating, {}, "yield"),
        (lambda: None, {}, "called with one record"),
        (obeys, {"wrokers": 2}, "wrokers"),
        (obeys, {"on_exhausted": "dead_letter"}, "needs a dead-letter topic"),
        (obeys, {"retry": {"attempts": 0}}, "attempts"),
        (obeys, {"workers": "pull"}, "record"),
    ],
)
def test_what_an_app_refuses_is_refused_here(
    handler: Any, options: dict[str, Any], why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        run_handler(handler, [("a", "")], **options)


def test_a_class_that_cannot_be_made_is_refused() -> None:
    class Broken:
        def __init__(self) -> None:
            raise OSError("no disk")

        def handle(self, _: Record) -> None: ...

    with pytest.raises(ConfigError, match=r"could not be made: OSError: no disk"):
        run_handler(Broken, [])


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, pytest.fail.Exception])
def test_what_ends_a_test_is_no_failed_attempt(interrupt: type[BaseException]) -> None:
    calls: list[Record] = []

    def handle(given: Record) -> None:
        calls.append(given)
        raise interrupt("enough")

    with pytest.raises(interrupt, match="enough"):
        run_handler(handle, [("a", "")])
    assert len(calls) == 1


def test_other_base_exceptions_are_failed_attempts_as_they_are_in_an_app() -> None:
    def leaves(_: Record) -> None:
        raise SystemExit(3)

    [result] = run_handler(leaves, [("a", "")])
    assert (result.outcome, result.attempts, result.reason) == ("blocked", 5, "SystemExit: 3")


def test_what_the_core_says_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "kafka_keyshared.testing"):
        run_handler(obeys, [("a", "bad")])
    assert "key b'a' is blocked at test-0@0" in caplog.text


def test_an_instance_that_would_stop_says_so() -> None:
    test = HandlerTest(obeys)
    test._drive.halt("because")
    with pytest.raises(KeySharedError, match="would stop here: because"):
        test.run([("a", "ok")])


def test_an_app_that_a_handler_runs_is_refused() -> None:
    inner = KeyShared({"bootstrap.servers": "nowhere.invalid:9092", "group.id": "inner"}, ["t"])
    inner.handler(lambda given: None)

    def runs_another(given: Record) -> None:
        inner.run()

    [result] = run_handler(runs_another, [("a", "")], retry={"attempts": 1})
    assert result.outcome == "blocked"
    assert result.reason.startswith("ConfigError: run() is called inside a handler: call it once")


def test_retries_and_dead_letters_have_what_came_whatever_the_handler_wrote() -> None:
    seen = []

    def decodes(given: Any) -> None:
        seen.append((given.topic(), given.key(), given.value()))
        given.set_key(given.key().decode())
        given.set_value({"paid": 1})
        given.set_topic("elsewhere")
        raise ValueError("no")

    [result] = run_handler(decodes, [("a", "1")], retry={"attempts": 3}, dlq=True)
    assert seen == [("test", b"a", b"1")] * 3
    assert result.outcome == "dead_lettered"
    assert result.dead_letter is not None
    assert (result.dead_letter.key(), result.dead_letter.value()) == (b"a", b"1")
    assert result.dead_letter.topic() == "test.dlq"


def test_what_is_set_in_a_decoded_record_is_read_back_and_does_not_reach_the_record() -> None:
    def sets(given: Any) -> None:
        given.set_value({**given.value(), "seen": True})
        given.set_key("other")
        assert given.value() == {"paid": 1, "seen": True}
        assert given.key() == "other"
        raise ValueError("no")

    [result] = run_handler(
        sets,
        [("a", '{"paid": 1}')],
        retry={"attempts": 2},
        value_deserializer=lambda data, context: json.loads(data),
    )
    assert result.reason == "ValueError: no"
    assert (result.record.key(), result.record.value()) == (b"a", b'{"paid": 1}')


def test_what_a_handler_hands_out_is_told_of_the_attempt_that_did() -> None:
    fail = fails(1)

    def handle(given: Record) -> Output | None:
        if given.value() == b"none":
            return None
        fail(given)
        return Output(given.value(), given.key())

    one, none = run_handler(handle, [("k", "v"), ("l", "none")], retry={"attempts": 2})
    assert (one.outcome, one.attempts, one.outputs) == ("done", 2, (Output("v", "k"),))
    assert (none.outcome, none.outputs) == ("done", ())


# --- handlers of several records, and coroutines ---

CONF = {"bootstrap.servers": "nowhere.invalid:9092", "group.id": "g"}


def batch_app(handler: Any, *, size: int = 10, same_key: bool = False, **options: Any) -> KeyShared:
    """Return an app whose handler takes several records."""
    app = KeyShared(CONF, ["t"], dlq=True, **options)
    app.batch_handler(size=size, same_key=same_key, wait=60)(handler)
    return app


def in_batch(records: Sequence[Record]) -> list[Any]:
    """Do what each value says, one answer for each."""
    answers: list[Any] = []
    for each in records:
        try:
            answers.append(obeys(each))
        except Exception as error:  # noqa: BLE001 - an answer like any other
            answers.append(error)
    return answers


async def in_batch_later(records: Sequence[Record]) -> list[Any]:
    await asyncio.sleep(0)
    return in_batch(records)


async def obeys_later(given: Record) -> Any:
    await asyncio.sleep(0)
    return obeys(given)


WORDS = ["", "bad", "drop", "letter", "ack", "raise", ""]
OUTCOMES = ["done", *("dead_lettered", "dropped", "dead_lettered", "done", "dead_lettered"), "done"]
ATTEMPTS = [1, 5, 1, 1, 1, 1, 1]


@pytest.mark.parametrize("handler", [in_batch, in_batch_later])
@pytest.mark.parametrize("same_key", [False, True])
def test_each_record_of_a_call_comes_to_what_its_answer_says(
    handler: Callable[..., Any], same_key: bool
) -> None:
    records = [("ann", word) for word in WORDS]
    results = run_handler(batch_app(handler, same_key=same_key), records)
    assert outcomes(results) == OUTCOMES
    assert [each.attempts for each in results] == ATTEMPTS
    assert results[1].reason == "ValueError: cannot read it"
    assert isinstance(results[1].error, ValueError)
    assert results[0].error is None


@pytest.mark.parametrize("awaited", [False, True])
def test_a_call_has_as_many_records_as_its_size_says_and_fails_for_none(awaited: bool) -> None:
    def take(records: Sequence[Record]) -> None:
        if any(each.value() == b"bad" for each in records):
            raise ValueError("one of them")

    async def take_later(records: Sequence[Record]) -> None:
        take(records)

    handler = take_later if awaited else take
    workers: Any = "asyncio:1" if awaited else 1
    words = ["", "bad", "", ""]
    with HandlerTest(batch_app(handler, size=3, workers=workers)) as test:
        results = test.run([(f"k{at}", word) for at, word in enumerate(words)])
    sizes = [len(each) for each in test.batches]
    assert sizes[0] == 3
    assert sorted(sizes) == [1] * 8 + [3]  # each alone, four more attempts of one, and the fourth
    assert outcomes(results) == ["done", "dead_lettered", "done", "done"]
    assert [each.attempts for each in results] == [1, 5, 1, 1]
    assert results[1].reason == "ValueError: one of them"
    assert [each.error for each in results if each.outcome == "done"] == [None] * 3


def test_a_batch_handler_whose_answers_are_too_few_has_failed() -> None:
    [one, two] = run_handler(batch_app(lambda records: [None]), [("a", ""), ("b", "")])
    assert outcomes([one, two]) == ["done", "done"]
    wrong = batch_app(lambda records: [None, None, None], retry={"attempts": 1})
    [one] = run_handler(wrong, [("a", "")])
    assert one.outcome == "dead_lettered"
    assert one.reason.startswith("TypeError: the batch handler returned 3 verdicts for 1 records")


@pytest.mark.parametrize("workers", [None, "asyncio:2"])
def test_a_coroutine_function_comes_to_what_it_comes_to_on_threads(workers: str | None) -> None:
    options: dict[str, Any] = {} if workers is None else {"workers": workers}
    results = run_handler(obeys_later, [("ann", word) for word in WORDS], dlq=True, **options)
    assert outcomes(results) == OUTCOMES
    assert [each.attempts for each in results] == ATTEMPTS
    assert results[1].called_at[1] > 0


def test_a_class_with_coroutines_has_one_instance_on_a_loop_of_its_own() -> None:
    closed = []

    class Later:
        def __init__(self) -> None:
            self.seen = 0

        async def handle(self, _: Record) -> None:
            await asyncio.sleep(0.001)
            self.seen += 1

        async def close(self) -> None:
            closed.append(self.seen)

    with HandlerTest(Later) as test:
        test.run([(f"k{number}", "") for number in range(50)])
        test.run([("a", "")])
        assert closed == []
    assert closed == [51]


def test_on_a_loop_that_turns_it_says_how_to_call_it() -> None:
    async def test() -> None:
        run_handler(obeys_later, [("a", "")])

    with pytest.raises(ConfigError, match=r"from a plain function, or with asyncio\.to_thread\(\)"):
        asyncio.run(test())


def test_what_ends_a_test_ends_it_in_a_coroutine_too() -> None:
    async def handle(_: Record) -> None:
        pytest.fail("now")

    with pytest.raises(pytest.fail.Exception, match="now"):
        run_handler(handle, [("a", "")])
