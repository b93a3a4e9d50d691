"""Write what ``keyshared bench compare --json`` found into the documents: tables and plots.

``python -m tests.setup.compare_page [RESULT.json...]`` keeps these results, of one call each, as
the lines of ``docs/assets/compare.jsonl``, and writes from all that stands there
``docs/assets/compare-WORK.svg`` for each kind of work. Between the marks it writes the tables of
``docs/internals/notebook.md``, two of them into ``docs/operate/performance.md``, and one into
``README.md``. A result with two systems is a pair that was measured for its ratio, and has a table
of its own.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from itertools import filterfalse
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from kafka_keyshared.spark.plots import bars  # noqa: E402 - found through the line above
from tests.setup.page_tables import filled  # noqa: E402

PAGE = ROOT / "docs" / "internals" / "notebook.md"
SHORT = ROOT / "docs" / "operate" / "performance.md"
README = ROOT / "README.md"
PLOTS = ROOT / "docs" / "assets"
KEPT = PLOTS / "compare.jsonl"
BEGIN = "<!-- compare: tests/setup/compare_page.py writes what follows -->"
END = "<!-- end of compare -->"
KINDS = ("keeps the order of each key", "does not")
DOES = {
    "empty": "an empty handler",
    "sleep-1ms": "a handler that sleeps 1 ms",
    "sleep-2ms": "a handler that sleeps 2 ms",
    "sleep-5ms": "a handler that sleeps 5 ms",
    "cpu-200us": "a handler that computes for 200 µs",
}
PLOTTED = "uniform"
IN_SHORT = ("empty", "sleep-2ms", "cpu-200us")
"""The work that README.md has."""

Found = dict[str, Any]


def plots(found: Sequence[Found]) -> Iterator[tuple[str, str]]:
    """Give the name and the text of a plot for each kind of work."""
    for each in filterfalse(_is_pair, found):
        for work, does in DOES.items():
            rows = [row for row in each["rows"] if row["scenario"] == f"{PLOTTED}/{work}"]
            if rows:
                values = {row["system"]: [float(row["per_s"])] for row in rows}
                kinds = {row["system"]: int(not row["key_order"]) for row in rows}
                title = f"Records per second, {does}, {each['cores']} cores"
                yield f"compare-{work}.svg", bars(title, values, KINDS, "records/s", kinds)


def tables(found: Sequence[Found]) -> str:
    """Return the tables: pairs, speed by kind of traffic, latency, order, what each is, when."""
    pairs = list(filter(_is_pair, found))
    whole = list(filterfalse(_is_pair, found))
    rows, latency, checked = (_all(whole, name) for name in ("rows", "latency", "checked"))
    parts = [_pairs(pairs)] if pairs else []
    for traffic in dict.fromkeys(row["scenario"].split("/")[0] for row in rows):
        parts.append(_speed(rows, traffic))
    if latency:
        parts.append(_latency(latency))
    if checked:
        parts.append(_order(checked))
    return "\n\n".join([*parts, _systems(found), _taken(found)])


def in_short(found: Sequence[Found]) -> str:
    """Return the one table of README.md: records per second, and what is promised."""
    rows = _all(list(filterfalse(_is_pair, found)), "rows")
    told = {(row["system"], row["scenario"]): f"{row['per_s']:,}" for row in rows}
    promises = {
        row["system"]: [_yes(row[each]) for each in ("key_order", "at_least_once")] for row in rows
    }
    scenarios = [f"{PLOTTED}/{work}" for work in IN_SHORT]
    lines = [
        [name, *(told.get((name, each), "–") for each in scenarios), *promised]
        for name, promised in promises.items()
    ]
    heads = ["records/s", *(DOES[work] for work in IN_SHORT), "order per key", "at least once"]
    return _table(heads, lines)


def short(found: Sequence[Found], page: str) -> str:
    """Return the performance page with its tables of throughput and latency."""
    whole = list(filterfalse(_is_pair, found))
    tables = {
        "throughput": lambda: _speed(_all(whole, "rows"), PLOTTED),
        "latency": lambda: _latency(_all(whole, "latency")),
    }
    return filled(SHORT.name, page, tables)


def _is_pair(found: Found) -> bool:
    return len(found["systems"]) == 2


def _all(found: Sequence[Found], name: str) -> list[Found]:
    return [row for each in found for row in each[name]]


def _pairs(found: Sequence[Found]) -> str:
    lines = []
    for row, other in (each["rows"] for each in found):
        ours, theirs = row["per_s_runs"], other["per_s_runs"]
        ratios = [one / two for one, two in zip(ours, theirs, strict=True)]
        each = (f"{round(statistics.median(rates)):,}" for rates in (ours, theirs))
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        median = f"**{statistics.median(ratios):.2f}**"
        names = (row["scenario"], row["system"], other["system"])
        lines.append([*names, str(len(ratios)), *each, median, spread])
    heads = ["scenario", "one", "other", "pairs", "one/s", "other/s", "ratio", "range"]
    return _table(heads, lines)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def _yes(value: object) -> str:
    return "yes" if value else "**no**"


def _speed(found: Sequence[Found], traffic: str) -> str:
    rows = [row for row in found if row["scenario"].startswith(f"{traffic}/")]
    works = [work for work in DOES if any(row["scenario"].endswith(f"/{work}") for row in rows)]
    told = {(row["system"], row["scenario"].split("/")[1]): row for row in rows}
    lines = []
    for name in dict.fromkeys(row["system"] for row in rows):
        cells, most = [], 0.0
        for work in works:
            row = told.get((name, work))
            ratio = "" if row is None or row["ratio"] is None else f" ({row['ratio']:.2f})"
            cells.append("–" if row is None else f"{row['per_s']:,}{ratio}")
            most = max(most, (row or {}).get("peak_mib") or 0)
        any_row = next(row for row in rows if row["system"] == name)
        promises = [_yes(any_row[each]) for each in ("key_order", "at_least_once")]
        bounded = _yes(any_row["bounded_memory"])
        lines.append([name, *cells, *promises, bounded, f"{most:,.0f}" if most else "–"])
    heads = [f"{traffic} keys", *works, "order per key", "at least once", "bounded memory", "MiB"]
    return _table(heads, lines)


def _latency(found: Sequence[Found]) -> str:
    rows = [
        [row["system"], *(_ms(row[name]) for name in ("p50_ms", "p99_ms", "added_p50_ms"))]
        for row in found
    ]
    rate = found[0]["rate"]
    return _table([f"{rate:,} records/s", "p50, ms", "p99, ms", "added to bare, p50, ms"], rows)


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _order(found: Sequence[Found]) -> str:
    names = ("missing", "repeated", "out_of_order", "overlapping")
    rows = [
        [row["system"], row["traffic"], *(f"{row[name]:,}" for name in ("records", *names))]
        for row in found
    ]
    heads = ["system", "keys", "records", "missing", "repeated", "out of order", "overlapping"]
    return _table(heads, rows)


def _systems(found: Sequence[Found]) -> str:
    rows = {
        each["system"]: [each["system"], each["version"] or "–", each["settings"], each["source"]]
        for each in _all(found, "systems")
    }
    for each in _all(found, "left_out"):
        name = each["system"]
        rows.setdefault(name, [name, "–", f"left out: {each['why']}", "–"])
    return _table(["system", "version", "settings", "who says so"], list(rows.values()))


def _taken(found: Sequence[Found]) -> str:
    lines = []
    for each in found:
        what = ", ".join(dict.fromkeys(row["scenario"] for row in each["rows"])) or "–"
        if each["latency"]:
            what = f"{what}, latency".removeprefix("–, ")
        if each["checked"]:
            what = f"{what}, order".removeprefix("–, ")
        by_partition = f"{each['runs']} of at most {each['limit']:g} s"
        on = f"{each['cores']} cores, CPython {each['python']}, {each['kafka']} Kafka"
        systems = str(len(each["systems"]))
        lines.append([each["taken"], what, systems, by_partition, on, f"{each['load']:.1f}"])
    heads = ["taken", "scenario", "systems", "runs of each", "on", "load before"]
    return _table(heads, lines)


def read_kept(kept: Path = KEPT) -> list[Found]:
    """Return the results that the page was written from."""
    lines = kept.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def keep(found: Sequence[Found], kept: Path) -> None:
    """Keep these results, one a line."""
    lines = (json.dumps(each, ensure_ascii=False, separators=(",", ":")) for each in found)
    kept.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def written(text: str, page: str) -> str:
    """Return the page with this text between its marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{after}"


def write(found: Sequence[Found], page: Path, readme: Path, folder: Path) -> None:
    """Write the plots into a folder, and the tables into the page and README.md."""
    for name, text in plots(found):
        (folder / name).write_text(text, encoding="utf-8")
    for path, text in ((page, tables(found)), (readme, in_short(found))):
        path.write_text(written(text, path.read_text(encoding="utf-8")), encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    """Keep what the files named hold, if any are, and write what is kept."""
    if arguments:
        keep([json.loads(Path(each).read_text(encoding="utf-8")) for each in arguments], KEPT)
    write(read_kept(), PAGE, README, PLOTS)
    SHORT.write_text(short(read_kept(), SHORT.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
