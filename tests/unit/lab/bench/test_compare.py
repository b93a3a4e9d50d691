"""What bench compare makes of runs, without running any: keys, verdicts, rows, what is refused."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import msgspec
import pytest

from kafka_keyshared.errors import ConfigError
from kafka_keyshared.lab.bench import systems
from kafka_keyshared.lab.bench.compare import ComparePlan
from kafka_keyshared.lab.bench.compare_paced import waits_of
from kafka_keyshared.lab.bench.compare_rows import circumstances, hot_row, rows_of
from kafka_keyshared.lab.bench.compare_run import MeasuredRun, PeerError, run_system
from kafka_keyshared.lab.bench.jars import arguments
from kafka_keyshared.lab.bench.paced import STAMP, Pace, hot_records
from kafka_keyshared.lab.bench.peers.aio import JobClock
from kafka_keyshared.lab.bench.systems import FAMILIES, every_system, system_of
from kafka_keyshared.lab.bench.workloads import (
    HOT_WORK,
    KNOCK,
    NOTE,
    BenchJob,
    JobResult,
    Note,
    by_method,
    handler_of,
    judge,
    keys_of,
    read_notebook,
    value_of,
)
from tests.setup import compare_page


def a_job(**more: Any) -> BenchJob:
    about = {"family": "bare", "size": "", "bootstrap": "x", "topic": "t", "group": "g"}
    return msgspec.convert({**about, "records": 1, "limit": 1.0, **more}, BenchJob)


def test_keys_are_even_or_skewed_or_one_and_the_same_every_time() -> None:
    uniform = Counter(keys_of("uniform", 1_000, 10))
    assert set(uniform.values()) == {100}
    assert set(keys_of("one-key", 50, 10)) == {0}
    zipf = list(keys_of("zipf", 20_000, 1_000))
    assert zipf == list(keys_of("zipf", 20_000, 1_000))
    most = Counter(zipf)
    # The first has a share of 1 / (the sum of n ** -1.1), the second 2 ** -1.1 of that.
    assert 0.16 < most[0] / 20_000 < 0.20
    assert 0.40 < most[1] / most[0] < 0.53


def test_a_value_begins_with_two_numbers_and_has_its_size() -> None:
    assert STAMP.unpack_from(value_of(7, 3, 100)) == (7, 3)
    assert len(value_of(7, 3, 100)) == 100
    assert len(value_of(7, 3, 0)) == STAMP.size


def note(number: int, key: int, start: int, end: int) -> Note:
    return (number, key, start, end)


@pytest.mark.parametrize(
    ("notes", "expected"),
    [
        ([note(0, 1, 0, 5), note(1, 1, 5, 9)], (0, 0, 0, 0)),
        ([note(0, 1, 0, 5), note(1, 2, 1, 2)], (0, 0, 0, 0)),
        ([note(0, 1, 0, 5)], (1, 0, 0, 0)),
        ([note(0, 1, 0, 5), note(1, 1, 5, 9), note(1, 1, 9, 10)], (0, 1, 0, 0)),
        ([note(0, 1, 0, 5), note(0, 1, 5, 9)], (1, 1, 0, 0)),
        ([note(1, 1, 0, 5), note(0, 1, 6, 9)], (0, 0, 1, 0)),
        ([note(0, 1, 0, 5), note(1, 1, 4, 9)], (0, 0, 0, 1)),
        ([note(1, 1, 0, 5), note(0, 1, 4, 9)], (0, 0, 1, 1)),
    ],
)
def test_the_verdict_on_two_records(notes: list[Note], expected: tuple[int, ...]) -> None:
    found = judge(notes, 2)
    told = (found.missing, found.repeated, found.out_of_order, found.overlapping)
    assert told == expected
    assert found.in_order is (expected[2:] == (0, 0))


def hot_pace(records: int) -> Pace:
    return Pace(
        bootstrap="x",
        topic="t",
        records=records,
        rate=100,
        skip=0,
        partitions=4,
        keys=10,
        value_bytes=20,
        hot_share=0.5,
    )


def test_beside_a_hot_key_only_the_others_of_the_last_third_count() -> None:
    pace, due, late = hot_pace(300), 10_000_000, 7_000_000
    hot = hot_records(pace.records, pace.hot_share)
    notes = [
        note(number, number * due, number * due + (late if number not in hot else 0), 4_000_000_000)
        for number in range(pace.records)
        if number < 200 or number not in hot
    ]
    found = waits_of(a_job(work=HOT_WORK), pace, notes)
    assert (found.others_p50_ms, found.others_p99_ms, found.others_unseen) == (7.0, 7.0, 0)
    row = hot_row("keyshared:thread:8", [found, found])
    assert (row["others_p99_ms"], row["others_p99s_ms"]) == (7.0, [7.0, 7.0])
    assert row["hot_per_s"] > 0


def test_a_run_that_is_over_before_its_last_record_is_due_is_no_result() -> None:
    for notes in ([], [note(0, 0, 1, 2)]):
        with pytest.raises(PeerError, match="over before 300 records were due"):
            waits_of(a_job(work=HOT_WORK), hot_pace(300), notes)


class Holds:
    def __init__(self, value: bytes) -> None:
        self._value = value

    def value(self) -> bytes:
        return self._value


def test_a_handler_notes_what_it_did_and_knocks_are_left_out(tmp_path: Path) -> None:
    notebook = tmp_path / "notes"
    assert read_notebook(notebook) == []
    handle = handler_of(a_job(notebook=str(notebook), work="uneven"), by_method)
    for number in (3, KNOCK, 4):
        handle(Holds(value_of(number, 9, 40)))
    found = read_notebook(notebook)
    assert [(number, mark) for number, mark, *_ in found] == [(3, 9), (4, 9)]
    assert all(start <= end for _, _, start, end in found)
    assert notebook.stat().st_size == 3 * NOTE.size


def test_a_record_that_comes_twice_stands_for_no_other_in_a_checked_run() -> None:
    checked, measured = JobClock(a_job(records=2, notebook="n")), JobClock(a_job(records=2))
    for clock in (checked, measured):
        clock.begin()
        clock.count(value_of(0, 0, 0))
        clock.count(value_of(0, 0, 0))
    assert not checked.over()
    assert measured.over()
    checked.count(value_of(1, 0, 0))
    assert checked.over()
    assert checked.result().records == 2


def test_every_family_says_what_it_guarantees_how_it_is_set_and_who_says_so() -> None:
    names = [system.name for system in every_system()]
    assert len(names) == len(set(names))
    for family in FAMILIES:
        assert family.settings
        assert family.source
        assert bool(family.package) == bool(family.get)
    about = system_of("thread-pool:8").about()
    assert (about["key_order"], about["at_least_once"]) == (False, False)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("bare", "bare"),
        ("thread-pool", "thread-pool:8"),
        ("thread-pool:3", "thread-pool:3"),
        ("keyshared:asyncio:7", "keyshared:asyncio:7"),
        ("parallel-consumer", "parallel-consumer:16"),
    ],
)
def test_a_system_is_known_by_its_family_and_size(name: str, shown: str) -> None:
    assert system_of(name).name == shown


@pytest.mark.parametrize(
    "name", ["nonsense", "bare:3", "thread-pool:0", "thread-pool:x", "keyshared:thread:0"]
)
def test_a_system_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(ConfigError):
        system_of(name)


@pytest.mark.parametrize(
    ("plan", "option"),
    [
        (ComparePlan(systems=("other",)), "--systems"),
        (ComparePlan(traffic=("other",)), "--traffic"),
        (ComparePlan(work=("other",)), "--work"),
        (ComparePlan(records=-1), "--records"),
        (ComparePlan(runs=0), "--runs"),
        (ComparePlan(limit=0), "--limit"),
        (ComparePlan(check=-1), "--check"),
        (ComparePlan(hot_seconds=2), "--hot-seconds"),
        (ComparePlan(value_bytes=8), "--value-bytes"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused_by_name(plan: ComparePlan, option: str) -> None:
    with pytest.raises(ConfigError, match=option):
        plan.check_plan()


def test_what_is_not_installed_is_named_with_the_command_that_gets_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert system_of("bare").missing() is None
    monkeypatch.setattr(systems, "find_spec", lambda name: None)
    assert "pip install" in str(system_of("aiokafka").missing())
    monkeypatch.setattr(sys, "version_info", (3, 11, 0, "final", 0))
    assert "needs Python 3.12" in str(system_of("pyrallel-consumer").missing())
    monkeypatch.setattr(sys, "version_info", (3, 12, 0, "final", 0))
    assert "pip install pyrallel-consumer" in str(system_of("pyrallel-consumer").missing())


def test_without_its_jars_the_java_peer_is_named_with_the_command_that_gets_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert "kafka_keyshared.lab.bench.jars" in str(system_of("parallel-consumer").missing())


def test_the_java_peer_is_told_the_job_as_arguments() -> None:
    job = a_job(size="16", records=5, limit=2.5, work="uneven", notebook="/n")
    assert arguments(job) == ["x", "t", "g", "5", "2.5", "16", "2000", "0", "1", "/n"]
    assert arguments(a_job(work="cpu-200us", size="1"))[6:] == ["0", "200000", "0", "-"]


def test_the_best_run_counts_beside_the_best_of_bare() -> None:
    def runs(*per_s: int) -> list[MeasuredRun]:
        each = [JobResult(seconds=2.0, records=2 * rate) for rate in per_s]
        return [MeasuredRun(ran=ran, peak_mib=float(ran.records)) for ran in each]

    found = {"bare": runs(100, 200, 100), "thread-pool:8": runs(50, 40, 80), "aiokafka": []}
    bare, pool = rows_of("uniform/empty", 400, found)
    assert (bare["per_s"], bare["ratio"], bare["complete"]) == (200, 1.0, True)
    assert (pool["per_s"], pool["ratio"], pool["complete"]) == (80, 0.4, False)
    assert (pool["per_s_runs"], pool["peak_mib"]) == ([50, 40, 80], 160.0)
    assert (pool["key_order"], bare["key_order"]) == (False, True)
    # The median of what they were in each round, 0.5, 0.2 and 0.8, and not of their best.
    assert pool["beside"] == {"bare": 0.5}
    assert bare["beside"] == {"thread-pool:8": 2.0}
    (alone,) = rows_of("uniform/empty", 400, {"thread-pool:8": runs(50)})
    assert (alone["ratio"], alone["beside"]) == (None, {})


def test_one_that_failed_in_a_later_round_is_compared_by_the_rounds_it_had() -> None:
    runs = {
        name: [MeasuredRun(ran=JobResult(seconds=1.0, records=10), peak_mib=None)] for name in "ab"
    }
    found = {"bare": runs["a"] * 3, "thread-pool:8": runs["b"]}
    _, pool = rows_of("uniform/empty", 10, found)
    assert pool["beside"] == {"bare": 1.0}


def test_only_the_load_of_others_makes_figures_doubtful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    # What it is by the end comes from the systems that were measured.
    monkeypatch.setattr("os.getloadavg", lambda: (90.0, 0.0, 0.0))
    assert circumstances(before=1.9)["suspect"] == []
    (doubt,) = circumstances(before=2.1)["suspect"]
    assert "a load of 2.1 at the start on 2 cores" in doubt


def test_a_system_that_fails_is_told_in_one_line() -> None:
    with pytest.raises(PeerError, match=r"^it ended with status 1: KeyError: 'nonsense'$"):
        run_system(system_of("bare"), a_job(family="nonsense"))


def test_the_page_has_tables_and_plots_of_what_was_found(tmp_path: Path) -> None:
    row = {
        "ratio": 0.5,
        "peak_mib": 40.0,
        "key_order": True,
        "at_least_once": True,
        "bounded_memory": False,
    }
    about = {
        "cores": 2,
        "taken": "2026-01-02",
        "python": "3.11.1",
        "kafka": "real",
        "load": 0.5,
        "runs": 3,
        "limit": 4.0,
        "latency": [],
        "checked": [],
        "left_out": [],
    }
    whole = {
        **about,
        "rows": [
            {**row, "system": "bare", "scenario": "uniform/empty", "per_s": 2_000},
            {**row, "system": "<b>", "scenario": "uniform/empty", "per_s": 1_000},
        ],
        "systems": [system_of("bare").about()],
        "left_out": [{"system": "aiokafka", "why": "not there"}],
    }
    more = {
        **about,
        "rows": [{**row, "system": "bare", "scenario": "zipf/sleep-1ms", "per_s": 3}],
        "latency": [
            {"system": "bare", "rate": 1_000, "p50_ms": 1, "p99_ms": 2, "added_p50_ms": None}
        ],
        "systems": [system_of("bare").about()],
    }
    ran = {"scenario": "uniform/sleep-2ms", "per_s": 9, "key_order": True}
    pair = {
        **about,
        "rows": [
            {**ran, "system": "keyshared:thread:8", "per_s_runs": [6, 9, 4]},
            {**ran, "system": "bare", "per_s_runs": [3, 3, 4]},
        ],
        "systems": [system_of(name).about() for name in ("keyshared:thread:8", "bare")],
    }
    found = [pair, whole, more]
    page = tmp_path / "page.md"
    readme = tmp_path / "README.md"
    readme.write_text(f"first\n{compare_page.BEGIN}\n{compare_page.END}\nlast\n")
    page.write_text(f"before\n{compare_page.BEGIN}\nold\n{compare_page.END}\nafter\n")
    compare_page.write(found, page, readme, tmp_path)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "| <b> | 1,000 (0.50) | yes | yes | **no** | 40 |" in text
    assert "| zipf keys | sleep-1ms |" in text
    assert (
        "| uniform/sleep-2ms | keyshared:thread:8 | bare | 3 | 6 | 3 | **2.00** | 1.00 to 3.00 |"
    ) in text
    taken = (
        "| 2026-01-02 | zipf/sleep-1ms, latency | 1 | 3 of at most 4 s | 2 cores, CPython 3.11.1"
    )
    assert taken in text
    assert "\n| <b> | 1,000 | – | – | yes | yes |\n" in readme.read_text()
    assert "| aiokafka | – | left out: not there | – |" in text
    drawn = Xml.parse(tmp_path / "compare-empty.svg").getroot()
    assert "<b>" in [each.text for each in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert [path.name for path in tmp_path.glob("*.svg")] == ["compare-empty.svg"]
    compare_page.write(found, page, readme, tmp_path)
    assert page.read_text() == text


def test_the_page_and_the_plots_are_those_of_the_results_that_are_kept() -> None:
    found = compare_page.read_kept()
    page = compare_page.PAGE.read_text(encoding="utf-8")
    assert compare_page.written(compare_page.tables(found), page) == page
    readme = compare_page.README.read_text(encoding="utf-8")
    assert compare_page.written(compare_page.in_short(found), readme) == readme
    performance = compare_page.SHORT.read_text(encoding="utf-8")
    assert compare_page.short(found, performance) == performance
    drawn = dict(compare_page.plots(found))
    kept = {path.name: path.read_text("utf-8") for path in compare_page.PLOTS.glob("compare-*.svg")}
    assert drawn == kept
