"""Orders: one way in, for any thread, and an answer whatever becomes of the instance."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from kafka_keyshared.core.backpressure.pause_reasons import Reason
from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.errors import InvariantError
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.runtime.command_queue import OrderRefusedError, Orders
from kafka_keyshared.runtime.flush import FlushOrder, flush
from kafka_keyshared.runtime.lane_orders import closed_lanes, give
from kafka_keyshared.runtime.loop import Loop
from kafka_keyshared.runtime.scaling import Moving, bring_to
from tests.support.loop_ports import Stage
from tests.support.records import P0, P1, record

WAIT = 30.0


@pytest.fixture
def stage() -> Stage:
    made = Stage()
    made.assign(P0)
    made.fill(record(0, "a"), record(1, "b"), record(2, "c"))
    return made


def post(stage: Stage, order: Callable[[Loop], Generator[None, None, Any]]) -> Future[Any]:
    return stage.loop.orders.post("flush", lambda: order(stage.loop))


def after(rounds: int, answer: str, begun: list[str]) -> Generator[None, None, str]:
    begun.append(answer)
    for _ in range(rounds):
        yield
    return answer


def test_an_order_of_another_thread_is_answered(stage: Stage) -> None:
    stage.accept()
    stage.step()
    with ThreadPoolExecutor(1) as other:
        asked = other.submit(flush, stage.instance, WAIT)
        while not stage.loop.orders.line:
            assert not asked.done()
        while not asked.done():
            stage.step()
            stage.work()
    assert asked.result() == {P0: 3}


def test_an_order_wakes_an_owner_that_waits_in_its_mailbox(stage: Stage) -> None:
    stage.loop.orders.post("look", lambda: after(0, "seen", []))
    assert stage.mailbox.get_nowait() is None


def test_it_is_done_between_the_mail_and_the_fetch(stage: Stage) -> None:
    seen: list[tuple[str, int]] = []

    def look(loop: Loop) -> Generator[None, None, None]:
        seen.append(("order", loop.stats.fetched))
        yield

    stage.mailbox.put(ev.FencePassed("default", 0, ()))
    tell = stage.loop.tell
    stage.loop.tell = lambda event: (seen.append((type(event).__name__, 0)), tell(event))[1]  # type: ignore[method-assign, func-returns-value]
    post(stage, look)
    stage.step()
    assert [name for name, _ in seen[:3]] == ["Reported", "order", "Fetched"]


def test_an_order_that_waits_keeps_no_other_waiting(stage: Stage) -> None:
    begun: list[str] = []
    first = post(stage, lambda _: after(3, "first", begun))
    second = post(stage, lambda _: after(1, "second", begun))
    stage.step()
    assert begun == ["first", "second"], "the oldest first"
    stage.step()
    assert second.result(0) == "second"
    assert not first.done()
    stage.step(2)
    assert first.result(0) == "first"
    assert not stage.loop.orders.line


def test_a_scaling_that_waits_for_what_runs_lets_others_be_answered(stage: Stage) -> None:
    stage.accept()
    stage.step()
    worker = next(each for each in stage.pool.workers.values() if each.start() is not None)
    scaled = post(stage, bring_to("default", ["one", "two"], Moving()))
    stage.step(3)
    assert not scaled.done(), "a record runs at a worker that leaves"
    with ThreadPoolExecutor(1) as other:
        lanes = other.submit(stage.instance.ask, "lanes", closed_lanes, WAIT)
        while not lanes.done():
            stage.step()
    assert lanes.result() == []
    again = post(stage, bring_to("default", ["two"], Moving()))
    stage.step()
    names = {each.name for each in stage.core.subscriptions["default"].workers.values()}
    assert "two" in names
    assert not again.done()
    worker.finish()
    stage.work()
    stage.step(3)
    assert scaled.result(0) == again.result(0) == ("two",), "each says who is there by then"


def test_two_flushes_at_once_are_answered_with_what_the_broker_has(stage: Stage) -> None:
    stage.accept()
    stage.step()
    flushed = [post(stage, FlushOrder()) for _ in range(2)]
    stage.work()
    stage.now += 0.02
    stage.step(4)
    assert [each.result(0) for each in flushed] == [{P0: 3}, {P0: 3}]


def test_an_order_of_which_nobody_wants_the_answer_holds_up_no_other(stage: Stage) -> None:
    begun: list[str] = []
    first = post(stage, lambda _: after(10**9, "first", begun))
    second = post(stage, lambda _: after(0, "second", begun))
    stage.step()
    assert first.cancel()
    stage.step()
    assert second.result(0) == "second"


def test_who_waits_too_long_gives_the_order_up(stage: Stage) -> None:
    begun: list[str] = []
    with pytest.raises(TimeoutError, match=r"flush: not done within 0 s, and given up"):
        stage.instance.ask("flush", lambda _: after(0, "done", begun), 0.0)
    stage.step()
    assert begun == []
    with pytest.raises(TimeoutError, match=r"scale: not done within 0 s, and given up"):
        stage.instance.ask("scale", lambda _: after(0, "done", begun), 0.0, follows=True)


def test_what_follows_by_itself_is_not_said_to_be_given_up_once_it_has_begun(stage: Stage) -> None:
    begun: list[str] = []
    stop = threading.Event()

    def go_on() -> None:
        while not stop.is_set():
            stage.loop.orders.serve()

    owner = threading.Thread(target=go_on)
    owner.start()
    try:
        for follows, end in ((True, ""), (False, ", and given up")):
            with pytest.raises(TimeoutError) as raised:
                stage.instance.ask(
                    "scale", lambda _: after(10**12, "done", begun), 0.3, follows=follows
                )
            assert str(raised.value) == f"scale: not done within 0.3 s{end}"
            assert begun.pop() == "done"
    finally:
        stop.set()
        owner.join(WAIT)


@pytest.mark.parametrize(
    "order",
    [
        give(ev.LaneOrder("audit", ev.LaneAction.UNBLOCK, b"a")),
        bring_to("audit", ["one"], Moving()),
    ],
)
def test_for_a_subscription_that_is_not_there_it_is_refused_with_those_that_are(
    stage: Stage, order: Callable[[Loop], Generator[None, None, Any]]
) -> None:
    answer = post(stage, order)
    stage.step()
    with pytest.raises(OrderRefusedError, match="no subscription 'audit'; there is 'default'"):
        answer.result(0)
    stage.step()  # and it goes on


def test_after_the_end_it_is_refused_with_the_reason(stage: Stage) -> None:
    stage.instance.stop(1.0, lambda: False)
    with pytest.raises(OrderRefusedError, match="flush: the instance is stopping"):
        flush(stage.instance, 0.0)
    stage.instance.close()
    with pytest.raises(OrderRefusedError, match="flush: the instance is stopping"):
        flush(stage.instance, 0.0)


@pytest.mark.parametrize("begun", [True, False])
def test_the_end_answers_all_that_wait(stage: Stage, begun: bool) -> None:
    waiting = [post(stage, lambda _: after(10**9, "never", [])) for _ in range(3)]
    if begun:
        stage.step()
    stage.instance.close()
    for each in waiting:
        with pytest.raises(OrderRefusedError, match="flush: the instance has ended"):
            each.result(0)


def test_a_halt_answers_all_that_wait_with_its_reason(stage: Stage) -> None:
    waiting = [post(stage, lambda _: after(10**9, "never", [])) for _ in range(2)]
    stage.step()
    stage.loop.halt("no right to commit")
    stage.instance.stop(1.0, lambda: False)
    for each in waiting:
        with pytest.raises(OrderRefusedError, match="it had to halt: no right to commit"):
            each.result(0)


def test_an_order_that_fails_is_answered_and_ends_the_instance(stage: Stage) -> None:
    def broken(_: Loop) -> Generator[None, None, None]:
        raise InvariantError("planted")
        yield

    waits = post(stage, broken)
    with pytest.raises(InvariantError, match="planted"):
        stage.step()
    with pytest.raises(OrderRefusedError, match="it has failed: InvariantError: planted"):
        waits.result(0)


def test_orders_posted_while_it_ends_are_all_answered() -> None:
    """From many threads, and the end in the middle of it: none may wait for ever."""
    orders = Orders(lambda: None)
    replies: list[Future[str]] = []
    begin = threading.Barrier(5)

    def ask() -> None:
        begin.wait(WAIT)
        replies.extend([orders.post("x", lambda: after(0, "done", [])) for _ in range(200)])

    askers = [threading.Thread(target=ask) for _ in range(4)]
    for each in askers:
        each.start()
    begin.wait(WAIT)
    orders.serve()
    orders.close("over")
    for each in askers:
        each.join(WAIT)
    assert len(replies) == 800
    assert all(each.done() for each in replies)
    assert all(each.exception(0) is None or "x: over" in str(each.exception(0)) for each in replies)


# --- flush ---


def no_answer(stage: Stage) -> None:
    stage.client.answer = lambda commit: None


def test_a_flush_waits_for_what_is_leased_and_commits_it(stage: Stage) -> None:
    stage.accept()
    stage.step()
    worker = next(each for each in stage.pool.workers.values() if each.start() is not None)
    flushed = post(stage, FlushOrder())
    stage.step(5)
    assert not flushed.done(), "a record still runs"
    worker.finish()
    stage.work()
    stage.now += 0.02
    stage.step(3)
    assert flushed.result(0) == {P0: 3}
    assert stage.client.commits[-1].entries[P0].position == 3


def test_a_flush_does_not_wait_for_what_is_leased_later(stage: Stage) -> None:
    stage.accept()
    stage.step()
    flushed = post(stage, FlushOrder())
    stage.step()
    stage.work()
    stage.fill(record(3, "d"))
    stage.now += 0.02
    stage.step(2)
    assert any(each.busy for each in stage.pool.workers.values()), "the next one has not run"
    assert flushed.result(0)[P0] >= 3


def test_a_flush_is_answered_when_the_broker_has_it_and_not_before(stage: Stage) -> None:
    stage.accept()
    stage.step()
    stage.work()
    no_answer(stage)
    flushed = post(stage, FlushOrder())
    stage.now += 0.02
    stage.step(3)
    assert stage.sent() == [0, 3]
    assert not flushed.done()
    failed = stage.client.commits[-1]
    stage.mailbox.put(ev.CommitAnswer(failed, ev.CommitResult.RETRY, "timed out"))
    stage.step(2)
    assert not flushed.done(), "that was no success"
    stage.accept()
    stage.now += 5.0
    stage.step(3)
    assert flushed.result(0) == {P0: 3}


def test_a_flush_says_nothing_of_a_partition_that_goes_meanwhile() -> None:
    stage = Stage()
    stage.accept()
    stage.assign(P0, P1)
    stage.fill(record(0, "a"), record(0, "d", P1))
    stage.step(2)
    stage.work()
    no_answer(stage)
    stage.now += 0.02
    flushed = post(stage, FlushOrder())
    stage.step(2)
    sent = stage.client.commits[-1]
    assert set(sent.entries) == {P0, P1}
    assert not flushed.done()
    stage.client.callbacks["lost"]([P0])
    stage.accept()
    stage.mailbox.put(ev.CommitAnswer(sent, ev.CommitResult.RETRY, "late"))
    stage.step()
    stage.now += 5.0
    stage.step(3)
    found: Mapping[TopicPartition, int] = flushed.result(0)
    assert found == {P1: 1}


def test_a_flush_of_nothing_is_answered_at_once() -> None:
    stage = Stage()
    flushed = post(stage, FlushOrder())
    stage.step()
    assert flushed.result(0) == {}


def test_a_flush_is_refused_while_nothing_may_be_committed(stage: Stage) -> None:
    stage.loop.commits_stopped = True
    flushed = post(stage, FlushOrder())
    stage.step()
    with pytest.raises(OrderRefusedError, match="until the group has assigned partitions anew"):
        flushed.result(0)


def test_a_flush_that_takes_too_long_says_what_still_runs_and_for_how_long(stage: Stage) -> None:
    stage.accept()
    stage.step()
    worker = next(each for each in stage.pool.workers.values() if each.start() is not None)
    order = FlushOrder()
    reply = post(stage, order)
    assert "has not started it" in order.waits_for()
    stage.step()
    assert "it waits for 1 running record (" in order.waits_for(), "in its first round already"
    for _ in range(30):
        stage.now += 0.5
        stage.step()
    assert not reply.done()
    running = worker.running
    assert running is not None
    assert re.fullmatch(
        rf"it waits for 1 running record \({running.topic()}-0@{running.offset()}, "
        rf"key b'\w+', 1\d s so far\)",
        order.waits_for(),
    )
    worker.finish()
    stage.work()
    no_answer(stage)
    stage.now += 0.02
    stage.step(2)
    assert order.waits_for() == "it waits for the broker to take the commit"


def test_a_flush_waits_for_a_stuck_record_too_and_names_it() -> None:
    stage = Stage(SubscriptionSettings(ack_timeout=1.0))
    stage.accept()
    stage.assign(P0)
    stage.fill(record(0, "slow"), record(1, "a"))
    stage.step(2)
    (worker,) = stage.pool.workers.values()
    hanging = worker.start()
    assert hanging is not None
    for _ in range(5):
        stage.now += 0.5
        stage.step(2)
    stage.work()
    order = FlushOrder()
    reply = post(stage, order)
    for _ in range(4):
        stage.now += 0.5
        stage.step()
    assert not reply.done()
    assert f"orders-0@{hanging.offset()}, key b'slow'" in order.waits_for()
    worker.finish_apart(hanging)
    for _ in range(4):
        stage.now += 0.5
        stage.step()
    assert reply.result(0) == {P0: 2}


def test_a_flush_of_a_paused_partition_is_one_like_any_other(stage: Stage) -> None:
    stage.accept()
    stage.step()
    stage.loop.core.holds.hold_all_back(Reason.WINDOW)
    flushed = post(stage, FlushOrder())
    stage.work()
    for _ in range(4):
        stage.now += 0.02
        stage.step()
    assert flushed.result(0) == {P0: 3}


def test_a_flush_is_refused_while_it_stops(stage: Stage) -> None:
    flushed = post(stage, FlushOrder())
    stage.instance.stop(1.0, lambda: True)
    with pytest.raises(OrderRefusedError, match="the instance is stopping"):
        flushed.result(0)
    with pytest.raises(OrderRefusedError, match="flush: the instance is stopping"):
        flush(stage.instance, 1.0)


def test_what_the_owner_asks_of_itself_is_refused_at_once(stage: Stage) -> None:
    """As in a callback of the client: it would wait for its own answer."""
    stage.loop.orders.belong()
    with pytest.raises(OrderRefusedError, match="not allowed in a callback"):
        flush(stage.instance, WAIT)


def test_a_flush_that_times_out_says_so_with_what_it_waits_for(stage: Stage) -> None:
    with pytest.raises(TimeoutError, match=r"flush: not done within 0\.01 s.*has not started it"):
        flush(stage.instance, 0.01)
