"""A plan carried out: order, bounds, refusals, crashes and pace, without a broker."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from kafka_keyshared.dlq.envelope import Headers
from kafka_keyshared.dlq.letter import Letter, LetterPlace
from kafka_keyshared.dlq.replay import BATCH, LetterRefusal, Replay, ReplayOutcome, headers_for
from kafka_keyshared.dlq.replay_plan import digest_of, mark_of
from tests.support.letters import a_letter, planned

Tell = Callable[[LetterRefusal | None], None]


class FakeSender:
    """Takes letters and answers them in any order, some of them with a refusal."""

    def __init__(
        self, seed: int = 0, refuse: Callable[[Letter], LetterRefusal | None] | None = None
    ):
        self.random = random.Random(seed)
        self.refuse = refuse or (lambda letter: None)
        self.taken: list[Letter] = []
        self.acknowledged: list[Letter] = []
        self.headers: list[Headers] = []
        self.waiting: list[tuple[Letter, Tell]] = []
        self.on_serve: Callable[[float], None] = lambda timeout: None
        self.answers_at_once = 0.1

    def send(self, letter: Letter, headers: Headers, tell: Tell) -> None:
        self.taken.append(letter)
        self.headers.append(headers)
        self.waiting.append((letter, tell))

    def serve(self, timeout: float) -> None:
        self.on_serve(timeout)
        # Asked without waiting, a broker has as a rule not yet answered.
        if timeout == 0 and self.random.random() >= self.answers_at_once:
            return
        self.random.shuffle(self.waiting)
        answered = self.waiting[: self.random.randint(0, len(self.waiting))]
        del self.waiting[: len(answered)]
        for letter, tell in answered:
            refusal = self.refuse(letter)
            if refusal is None:
                self.acknowledged.append(letter)
            tell(refusal)


class Kept:
    """A journal in memory."""

    def __init__(self) -> None:
        self.marks: dict[int, LetterPlace] = {}
        self.on_add: Callable[[], None] = lambda: None

    def add(self, letters: Iterable[tuple[LetterPlace, int]]) -> None:
        self.on_add()
        self.marks.update({mark: place for place, mark in letters})


def a_topic(seed: int, count: int = 400, keys: int = 12) -> list[Letter]:
    """Letters over three partitions, in no order of their source."""
    chance = random.Random(seed)
    sources = [("t", chance.randrange(2), offset) for offset in range(count)]
    near = sorted(range(count), key=lambda n: n + chance.choice((0, 0, 0, chance.randrange(200))))
    ends = defaultdict[int, int](int)
    letters = []
    for n in near:
        partition = chance.randrange(3)
        key = chance.choice([None, *(b"key-%d" % each for each in range(keys))])
        letters.append(a_letter((partition, ends[partition]), sources[n], key))
        ends[partition] += 1
    return letters


def in_reading_order(letters: list[Letter], seed: int) -> Callable[[], Iterator[Letter]]:
    """Read as a client does: by offset within a partition, partitions mixed."""

    def read() -> Iterator[Letter]:
        chance = random.Random(seed)
        left = defaultdict[int, list[Letter]](list)
        for letter in letters:
            left[letter.at.partition].append(letter)
        while left:
            partition = chance.choice(sorted(left))
            for _ in range(chance.randint(1, 20)):
                if not left[partition]:
                    del left[partition]
                    break
                yield left[partition].pop(0)

    return read


def assert_in_order(taken: list[Letter]) -> None:
    """Each key's letters of a source partition were sent by source offset."""
    sent: dict[tuple[bytes, int], list[int]] = defaultdict(list)
    for letter in taken:
        assert letter.told is not None
        if letter.key is not None:
            sent[letter.key, letter.told.source.partition].append(letter.told.source.offset)
    assert sent
    for lane, offsets in sent.items():
        assert offsets == sorted(offsets), lane


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("held_bytes", [0, 2_000, 32 << 20])
def test_every_letter_goes_once_and_each_key_in_the_order_of_its_source(
    seed: int, held_bytes: int
) -> None:
    letters = a_topic(seed)
    sender, kept = FakeSender(seed), Kept()
    plan = planned(letters)
    replay = Replay(plan, sender, kept, held_bytes=held_bytes)
    readings = 0

    def read() -> Iterator[Letter]:
        nonlocal readings
        readings += 1
        return in_reading_order(letters, seed)()

    outcome = replay.run(read)
    assert outcome.whole
    assert outcome.replayed == len(letters)
    assert sorted(letter.at for letter in sender.taken) == sorted(each.at for each in letters)
    assert_in_order(sender.taken)
    assert len(kept.marks) == len(letters)
    # What fits is held, so one reading is enough; with little room there are several.
    assert readings == 1 if held_bytes > 1 << 20 else readings > 1


@pytest.mark.parametrize("seed", range(4))
def test_one_letter_of_a_key_is_on_its_way_at_a_time(seed: int) -> None:
    letters = a_topic(seed, keys=3)
    sender = FakeSender(seed)

    def look(_timeout: float) -> None:
        keys = [letter.key for letter, _ in sender.waiting if letter.key is not None]
        assert len(keys) == len(set(keys))

    sender.on_serve = look
    assert Replay(planned(letters), sender, Kept()).run(in_reading_order(letters, seed)).whole


def test_held_letters_are_bounded() -> None:
    letters = [a_letter((0, n), ("t", 0, 1_000 - n), value=b"x" * 1_000) for n in range(300)]
    sender, most = FakeSender(), 0
    replay = Replay(planned(letters), sender, Kept(), held_bytes=30_000)

    def look(_timeout: float) -> None:
        nonlocal most
        most = max(most, len(replay._held))

    sender.on_serve = look
    assert replay.run(in_reading_order(letters, 1)).replayed == 300
    assert 10 < most <= 20
    assert_in_order(sender.taken)


def test_not_more_than_a_batch_is_sent_and_not_kept() -> None:
    letters = [a_letter((0, n), ("t", 0, n), None) for n in range(3_000)]
    sender, kept, most = FakeSender(), Kept(), 0
    sender.answers_at_once = 0  # a broker that is far away

    def look(_timeout: float) -> None:
        nonlocal most
        most = max(most, len(sender.taken) - len(kept.marks))

    sender.on_serve = look
    assert Replay(planned(letters), sender, kept).run(lambda: letters).replayed == 3_000
    assert most == BATCH


def test_what_is_kept_was_acknowledged_before() -> None:
    letters = [a_letter((0, n), ("t", 0, n), None) for n in range(1_000)]
    sender, kept = FakeSender(), Kept()
    replay = Replay(planned(letters), sender, kept)
    replay.run(lambda: letters)
    assert sender.acknowledged

    class Seen(Kept):
        def add(self, letters: Iterable[tuple[LetterPlace, int]]) -> None:
            done = {letter.at for letter in again.acknowledged}
            batch = list(letters)
            assert {place for place, _ in batch} <= done
            super().add(batch)

    again, seen = FakeSender(1), Seen()
    assert Replay(planned(letters), again, seen).run(lambda: letters).replayed == 1_000
    assert seen.marks == kept.marks


# --- what goes wrong ---


def test_letters_of_a_topic_that_was_made_anew_are_not_sent_for_those_of_the_plan() -> None:
    """They stand at the places of the old ones, and nobody has planned them."""
    old = [a_letter((0, n), ("t", 0, n), None, value=b"old") for n in range(30)]
    new = [a_letter((0, n), ("t", 0, n), None, value=b"new") for n in range(30)]
    sender, kept = FakeSender(), Kept()
    outcome = Replay(planned(old), sender, kept).run(lambda: [*old[:10], *new[10:]])
    assert {letter.value for letter in sender.taken} == {b"old"}
    assert (outcome.replayed, outcome.gone, outcome.whole) == (10, 0, False)
    assert outcome.halted is not None
    assert "0:10 is another letter than in the plan" in outcome.halted
    assert "the topic was created again" in outcome.halted


def test_a_refused_letter_stops_its_key_and_no_other() -> None:
    letters = [a_letter((0, n), ("t", 0, n), b"key-%d" % (n % 3)) for n in range(30)]
    sender = FakeSender(
        refuse=lambda letter: LetterRefusal("too large", False) if letter.at.offset == 9 else None
    )
    kept = Kept()
    outcome = Replay(planned(letters), sender, kept).run(lambda: letters)
    assert (outcome.replayed, outcome.refused, outcome.behind, outcome.left) == (23, 1, 6, 0)
    assert outcome.why == {"too large": 1}
    assert outcome.examples == [(LetterPlace(0, 9), "too large")]
    assert not outcome.whole
    sent = [letter.at.offset for letter in sender.acknowledged if letter.key == b"key-0"]
    assert sent == [0, 3, 6]
    assert len(kept.marks) == 23


@pytest.mark.parametrize("seed", range(4))
def test_refusals_anywhere_never_let_a_later_letter_of_the_key_go(seed: int) -> None:
    letters = a_topic(seed, keys=40)

    def refuse(letter: Letter) -> LetterRefusal | None:
        return LetterRefusal("no", False) if letter.at.offset % 17 == 3 else None

    sender = FakeSender(seed, refuse)
    outcome = Replay(planned(letters), sender, Kept(), held_bytes=5_000).run(
        in_reading_order(letters, seed)
    )
    assert outcome.replayed + outcome.refused + outcome.behind == len(letters)
    assert outcome.refused > 0
    assert_in_order(sender.taken)
    refused: set[tuple[Any, int]] = set()
    for letter in sender.taken:
        assert letter.told is not None
        assert letter.key is None or letter.key not in {key for key, _ in refused}
        if refuse(letter) and letter.key is not None:
            refused.add((letter.key, letter.told.source.offset))


def test_a_broker_that_is_gone_ends_all_of_it() -> None:
    letters = [a_letter((0, n), ("t", 0, n), None) for n in range(2_000)]
    sender = FakeSender(
        refuse=lambda letter: (
            LetterRefusal("broker away", True) if letter.at.offset >= 700 else None
        )
    )
    kept = Kept()
    outcome = Replay(planned(letters), sender, kept).run(lambda: letters)
    assert outcome.halted == "broker away"
    assert outcome.replayed == len(kept.marks) <= 700
    assert outcome.replayed + outcome.left == 2_000
    assert not outcome.whole


def test_letters_that_are_deleted_meanwhile_hold_nobody_up() -> None:
    letters = [a_letter((0, n), ("t", 0, 20 - n)) for n in range(20)]
    plan, sender = planned(letters), FakeSender()
    # The first ones, that all others wait for, are those at the end of the topic.
    outcome = Replay(plan, sender, Kept()).run(lambda: letters[:15])
    assert (outcome.replayed, outcome.gone, outcome.left) == (15, 5, 0)
    assert outcome.whole
    assert_in_order(sender.taken)


def test_a_stop_keeps_what_was_sent_and_the_next_replay_goes_on() -> None:
    letters = a_topic(5, count=1_500)
    sender, kept = FakeSender(5), Kept()
    replay = Replay(planned(letters), sender, kept, stopped=lambda: len(sender.taken) > 400)
    outcome = replay.run(in_reading_order(letters, 5))
    assert 400 < outcome.replayed == len(kept.marks) < 1_000
    assert outcome.left == 1_500 - outcome.replayed
    assert sender.waiting == []

    done = frozenset(kept.marks.values())
    rest = FakeSender(6)
    plan = planned(letters, already=done)
    assert Replay(plan, rest, kept).run(in_reading_order(letters, 6)).whole
    assert len(sender.taken) + len(rest.taken) == 1_500
    assert_in_order([*sender.taken, *rest.taken])


class KilledError(Exception):
    """Nothing more of the process happens."""


@pytest.mark.parametrize("seed", range(6))
def test_after_a_crash_at_most_a_batch_repeats_and_nothing_is_lost(seed: int) -> None:
    letters = a_topic(seed, count=1_500, keys=300)
    sender, kept = FakeSender(seed), Kept()
    killed_at = random.Random(seed).randint(300, 1_200)

    def kill(_timeout: float) -> None:
        if len(sender.taken) >= killed_at:
            kept.on_add = kill_again
            raise KilledError

    def kill_again() -> None:
        raise KilledError

    sender.on_serve = kill
    with pytest.raises(KilledError):
        Replay(planned(letters), sender, kept).run(in_reading_order(letters, seed))
    # The broker may have what it had not yet answered.
    before = list(sender.taken)

    rest = FakeSender(seed + 1)
    plan = planned(letters, already=frozenset(kept.marks.values()))
    assert Replay(plan, rest, Kept()).run(in_reading_order(letters, seed)).whole
    written = [letter.at for letter in (*before, *rest.taken)]
    assert set(written) == {letter.at for letter in letters}
    assert len(written) - len(set(written)) <= BATCH
    assert_in_order(before)
    assert_in_order(rest.taken)


# --- pace, and what is sent ---


def test_the_rate_is_kept() -> None:
    now = 0.0

    def let_time_pass(timeout: float) -> None:
        nonlocal now
        now += timeout

    letters = [a_letter((0, n), ("t", 0, n), None) for n in range(100)]
    sender = FakeSender()
    sender.on_serve = let_time_pass
    replay = Replay(planned(letters), sender, Kept(), rate=20, clock=lambda: now)
    assert replay.run(lambda: letters).replayed == 100
    assert 99 / 20 <= now < 99 / 20 + 5


def test_a_slow_rate_ends_at_once_when_it_is_told_to() -> None:
    now, stopping = 0.0, False

    def let_time_pass(timeout: float) -> None:
        nonlocal now, stopping
        now += timeout
        stopping = now > 30

    letters = [a_letter((0, n), ("t", 0, n), None) for n in range(100)]
    sender = FakeSender()
    sender.on_serve = let_time_pass
    replay = Replay(
        planned(letters), sender, Kept(), rate=0.1, clock=lambda: now, stopped=lambda: stopping
    )
    outcome = replay.run(lambda: letters)
    assert 3 <= outcome.replayed <= 4
    assert outcome.left == 100 - outcome.replayed
    assert now < 32


def test_the_replay_count_goes_up_by_one_and_the_own_headers_stay() -> None:
    own: Headers = [("h", b"1"), ("h", None), ("raw", b"\xff")]
    letter = replace(a_letter((0, 0), ("t", 0, 0), replays=2), headers=own)
    assert headers_for(letter) == [*own, ("keyshared.replays", b"3")]


def test_marks_are_those_that_a_later_plan_asks_for() -> None:
    letter = a_letter((0, 0), ("t", 0, 0))
    sender, kept = FakeSender(), Kept()
    assert Replay(planned([letter]), sender, kept).run(lambda: [letter]).whole
    assert kept.marks == {mark_of(letter, digest_of(letter)): LetterPlace(0, 0)}


def test_a_plan_of_nothing_reads_nothing() -> None:
    def read() -> Iterable[Letter]:
        raise AssertionError("it was read")

    assert Replay(planned([]), FakeSender(), Kept()).run(read) == ReplayOutcome()


def test_a_stop_does_not_wait_for_ever_for_a_broker_that_is_gone() -> None:
    letters = a_topic(3, keys=40)
    sender, kept, now = FakeSender(3), Kept(), 0.0

    def silent(timeout: float) -> None:
        nonlocal now
        now += timeout

    sender.serve = silent  # type: ignore[method-assign]
    replay = Replay(
        planned(letters),
        sender,
        kept,
        held_bytes=2_000,
        stopped=lambda: now > 10.0,
        patience=5.0,
        clock=lambda: now,
    )
    outcome = replay.run(in_reading_order(letters, 3))
    assert 15.0 <= now < 16.0
    assert sender.taken
    assert outcome.halted == f"{len(sender.taken)} letters had no answer 5 s after the stop"
    assert (outcome.replayed, outcome.left) == (0, len(letters))
    assert not kept.marks
