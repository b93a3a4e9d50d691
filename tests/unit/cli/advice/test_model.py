"""Advice from counts, with known answers."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from kafka_keyshared import KeyShared
from kafka_keyshared.cli.advice.count import WINDOW, SampleCounts
from kafka_keyshared.cli.advice.logs import PartitionLog
from kafka_keyshared.cli.advice.model import Advice, advise, recommended, speedups
from kafka_keyshared.cli.advice.report import duration, lines
from kafka_keyshared.cli.advice.sample import Sample
from kafka_keyshared.cli.advice.snippet import code
from kafka_keyshared.config.keys.sampled import TopicKeys
from kafka_keyshared.model import TopicPartition

Keys = Sequence[bytes | None]


def tally_of(*partitions: Keys) -> SampleCounts:
    """Count these keys; partitions take turns, as when a consumer fetches them."""
    tally = SampleCounts()
    for at in range(0, max(map(len, partitions), default=0), 100):
        for number, keys in enumerate(partitions):
            tally.add(TopicPartition("orders", number), keys[at : at + 100])
    tally.close()
    return tally


def of(
    *partitions: Keys,
    group: str | None = None,
    committed: tuple[int | None, ...] = (),
    ms: float = 10.0,
    **more: Any,
) -> Advice:
    """Advice for one topic with these keys in its partitions, all of it read in a second."""
    tally, logs = tally_of(*partitions), []
    for number, keys in enumerate(partitions):
        at_position = committed[number] if committed else None
        logs.append(PartitionLog(TopicPartition("orders", number), 0, len(keys), at_position))
    sample = Sample(
        logs=logs,
        complete=True,
        offsets=sum(log.size for log in logs),
        seconds=1.0,
        arrivals=None,
        arrivals_from=None,
    )
    return advise(tally, sample._replace(**more), group=group, ms_per_record=ms)


def uniform(records: int, keys: int, seed: int = 1) -> Keys:
    chance = random.Random(seed)
    return [b"key-%d" % chance.randrange(keys) for _ in range(records)]


def split(keys: Keys, partitions: int) -> list[Keys]:
    return [keys[number::partitions] for number in range(partitions)]


def test_many_even_keys_come_near_the_number_of_workers() -> None:
    advice = of(*split(uniform(100_000, 10_000), 4))
    assert 3.5 <= advice.speedup["4"] <= 4
    assert 12 <= advice.speedup["16"] <= 16
    assert 40 <= advice.speedup["64"] <= 64
    # A window has a tenth of the records, so chance makes it a little less even.
    assert 0.8 < advice.speedup_in_window["64"] / advice.speedup["64"] <= 1
    assert advice.today.speedup == 4.0
    assert advice.verdict == "helps"
    assert advice.workers == 64
    assert "64 workers" in advice.says


def test_a_key_with_half_of_all_records_allows_twice_the_work_and_no_more() -> None:
    keys = [b"hot" if at % 2 else key for at, key in enumerate(uniform(20_000, 5_000))]
    advice = of(*split(keys, 8))
    assert advice.hottest_bound == 2.0
    assert advice.hottest_share == 0.5
    assert advice.hottest_keys[0].key == "hot"
    for workers in ("4", "16", "64"):
        assert 1.3 < advice.speedup[workers] <= 2
    # Eight partitions that split the hot key look better, because they do not keep its order.
    assert advice.verdict == "little"
    assert "one key has 50% of all records" in advice.says


def test_keys_that_come_in_bursts_help_over_the_day_and_not_in_a_window() -> None:
    keys = [b"burst-%d" % (at // WINDOW) for at in range(20 * WINDOW)]
    advice = of(keys)
    assert advice.speedup["64"] > 8
    assert advice.speedup_in_window == {"4": 1.0, "16": 1.0, "64": 1.0}
    assert advice.verdict == "little"
    assert "too few keys are active at a time" in advice.says
    # Over all of it more workers look good, and none of them would have work.
    assert recommended(speedups(tally_of(keys))) > 4
    assert advice.workers == 4


def test_partitions_enough_are_told_as_the_reason() -> None:
    advice = of(*split(uniform(40_000, 10_000), 40))
    assert advice.today.speedup == 40.0
    assert advice.verdict == "little"
    assert "there are enough partitions" in advice.says
    assert "one for each of the 40 partitions, do 40.0 times" in advice.says


def test_one_key_is_told_plainly() -> None:
    advice = of([b"only"] * 500)
    assert advice.verdict == "one-key"
    assert "no number of workers helps" in advice.says
    assert set(advice.speedup.values()) == {1.0}


def test_no_key_at_all_is_told_plainly() -> None:
    advice = of([None] * 6_400)
    assert advice.verdict == "no-keys"
    assert "no record has a key" in advice.says
    assert "KIP-932" in advice.says
    assert (advice.keys, advice.null_keys, advice.hottest_bound) == (0, 6_400, None)
    assert advice.speedup == {"4": 4.0, "16": 16.0, "64": 64.0}
    assert advice.speedup_null_keys_one_lane == {"4": 1.0, "16": 1.0, "64": 1.0}
    assert any("no key at all" in line for line in lines(advice))


def test_no_records_are_told_plainly() -> None:
    advice = of([], [])
    assert advice.verdict == "no-records"
    assert advice.records == 0
    assert lines(advice) == [advice.says[0].upper() + advice.says[1:] + "."]


def test_fewer_keys_than_workers_is_said() -> None:
    advice = of(*split([b"key-%d" % (at % 5) for at in range(1_000)], 2))
    assert advice.speedup["64"] <= 5
    assert any("never more than 5 workers have work" in note for note in advice.notes)


def test_more_workers_are_advised_while_they_gain() -> None:
    assert recommended({4: 4, 8: 7.5, 16: 14, 32: 16, 64: 31}) == 16
    assert recommended({4: 1, 8: 1, 16: 1, 32: 1, 64: 1}) == 4
    assert recommended({4: 4, 8: 8, 16: 16, 32: 30, 64: 50}) == 64


# --- draining ---


def test_partitions_drain_side_by_side_and_workers_share_the_whole() -> None:
    # 100 and 300 records to go at 10 ms: the longer partition takes 3 s, four workers 1 s.
    advice = of(uniform(1_000, 900), uniform(1_000, 900), group="g", committed=(900, 700))
    assert (advice.lag.offsets, advice.lag.uncommitted_partitions) == (400, 0)
    assert advice.drain.today == 3.0
    assert advice.drain.workers["4"] == pytest.approx(4.0 / advice.speedup_in_window["4"], abs=0.06)
    assert advice.drain.workers["64"] < advice.drain.workers["4"]  # type: ignore[operator]


def test_without_a_group_the_whole_topic_is_to_be_drained() -> None:
    advice = of(uniform(1_000, 900), uniform(500, 400))
    assert advice.lag.group is None
    assert advice.lag.offsets == 1_500
    assert advice.drain.today == 10.0


def test_a_partition_without_a_position_counts_whole_and_that_is_said() -> None:
    advice = of(uniform(1_000, 900), uniform(500, 400), group="g", committed=(1_000, None))
    assert (advice.lag.offsets, advice.lag.uncommitted_partitions) == (500, 1)
    assert any("committed nothing in 1 partitions" in note for note in advice.notes)


def test_a_position_that_retention_overtook_counts_from_where_the_log_begins() -> None:
    log = PartitionLog(TopicPartition("orders", 0), 400, 1_000, 100)
    assert (log.size, log.lag) == (600, 600)
    assert log._replace(committed=1_200).lag == 0


def test_arrivals_compete_with_the_drain() -> None:
    # 10 ms a record: a partition does 100/s of which 60 are new, and 40 are left for the lag.
    rates = {TopicPartition("orders", number): 60.0 for number in range(2)}
    advice = of(uniform(2_000, 1_900), uniform(2_000, 1_900), arrivals=rates, arrivals_from="ends")
    assert advice.arrivals_per_s == 120.0
    assert advice.drain.today == 50.0
    four = 100 * advice.speedup_in_window["4"]
    assert advice.drain.workers["4"] == pytest.approx(4_000 / (four - 120), rel=0.02)


def test_what_never_drains_is_said() -> None:
    rates = {TopicPartition("orders", 0): 500.0}
    advice = of(uniform(2_000, 1_900), arrivals=rates, arrivals_from="ends")
    assert advice.drain.today is None
    assert advice.drain.workers["4"] is None
    assert advice.drain.workers["64"] is not None
    assert any("500 records/s arrive" in note for note in advice.notes)
    assert any("never" in line for line in lines(advice))


def test_offsets_without_records_make_the_lag_an_upper_bound() -> None:
    advice = of(uniform(1_000, 900), offsets=4_000)
    assert advice.lag.records == 250
    assert any("25% of the offsets hold a record" in note for note in advice.notes)
    assert advice.drain.today == 2.5


# --- what is printed ---


def test_the_report_begins_with_the_verdict_and_fits_on_a_screen() -> None:
    keys = [*uniform(30_000, 800), *([None] * 300)]
    advice = of(*split(keys, 16), group="billing", committed=(0,) * 16)
    advice.code = code("localhost:9092", advice.topics, "billing", advice.workers)
    printed = lines(advice)
    assert printed[0].startswith("It helps: ")
    assert len(printed) <= 30
    assert max(map(len, printed)) <= 100
    table = [line.split() for line in printed]
    assert ["4", f"{advice.speedup['4']:.1f}x"] in [row[:2] for row in table]
    assert any("time: the lag of billing, 30,300 records at 10 ms each" in line for line in printed)
    assert any("300 records without a key" in line for line in printed)


def test_scopes_that_differ_get_a_table() -> None:
    keys: Keys = [b"both"] * 50 + [b"one"] * 10
    advice = of(keys, keys)
    assert [advice.order_scope[name].lanes for name in ("partition", "topic")] == [4, 2]
    printed = "\n".join(lines(advice))
    assert "partition" in printed
    assert "the same lanes" not in printed


def test_a_key_of_any_bytes_is_shown() -> None:
    advice = of([b"\xff\x00[bold]"] * 3 + [b"b"])
    assert advice.hottest_keys[0].key == "\\xff\x00[bold]"
    assert any("'\\\\xff\\x00[bold]'" in line for line in lines(advice))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "never"), (0.0, "0.0 s"), (59.94, "59.9 s"), (61, "1 min 1 s"), (3_599.9, "1 h 0 min"),
     (7_260, "2 h 1 min"), (90_000, "1 d 1 h")],
)  # fmt: skip
def test_a_time_is_told_in_two_units(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_the_printed_code_is_an_app(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[KeyShared] = []

    def run(app: KeyShared) -> None:
        ran.append(app)

    monkeypatch.setattr(KeyShared, "run", run)
    text = code("localhost:9092", ['it"s', "b"], None, 32)
    exec(compile(text, "printed", "exec"), {"handle": print})
    (app,) = ran
    assert app.topics == ['it"s', "b"]
    assert app.options.workers == 32
    assert app.conf["bootstrap.servers"] == "localhost:9092"
    assert max(map(len, text.splitlines())) <= 100


def test_keys_of_a_setting_are_told_with_it_and_a_mixture_names_what_to_set() -> None:
    seen = {
        "cdc": TopicKeys(keyed=6, keyless=2),
        "typo": TopicKeys(keyless=5),
        "other": TopicKeys(
            keyed=1,
            broken=Counter({"the value is not JSON": 1}),
            unknown=Counter({"gzip; the setting says plain JSON": 3}),
        ),
    }
    tally = tally_of(uniform(6_000, 100), [None] * 2)
    sample = Sample([], True, 6_002, 1.0, None, None)
    key = "json:/payload/after/id"
    advice = advise(tally, sample, group=None, ms_per_record=5, key=key, keys_seen=seen)
    assert (advice.key, advice.unreadable_keys) == (key, 4)
    text = " ".join(" ".join(lines(advice)).split())
    assert f"2 records without a key (key={key!r})" in text
    assert f"Cdc: 2 records without a key by key={key!r} beside 6 that have one" in text
    assert "Set key='record'" in text
    assert f"Typo: no record has a key by key={key!r}" in text
    assert "3 keys unreadable, their partitions are paused until the setting is corrected" in text
    assert "1 key unreadable, they are handled by undecodable=: the value is not JSON" in text
    assert 'key="json:/payload/after/id")' in code("b:1", ["cdc"], "g", 4, key)
    assert "key=" not in code("b:1", ["cdc"], "g", 4)


def test_where_no_key_can_be_read_the_reasons_are_all_there_is_to_say() -> None:
    seen = {"orders": TopicKeys(unread=Counter({"ConnectionError: no route": 3}))}
    sample = Sample([], True, 3, 1.0, None, None)
    advice = advise(
        SampleCounts(), sample, group=None, ms_per_record=5, key="avro:id", keys_seen=seen
    )
    assert advice.verdict == "no-keys"
    text = " ".join(" ".join(lines(advice)).split())
    assert "partitions wait until the key can be read: ConnectionError: no route" in text
