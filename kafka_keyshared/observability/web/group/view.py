"""The group view, a pure function of reports, and its rules.

Reports are of different moments. So the view compares instances (duplicate owners, slow instances)
only while the group is at rest. At rest, no partition has moved for two reports.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Literal, NamedTuple, TypeAlias
from urllib.parse import urlsplit

import msgspec

from kafka_keyshared.config.http_options import LOOPBACK
from kafka_keyshared.model import counted, in_words, some
from kafka_keyshared.observability.diagnosis.causes import REBALANCE, Level
from kafka_keyshared.observability.diagnosis.findings import HEALTHY
from kafka_keyshared.observability.web.group.report import InstanceReport

VERSION = 1

SILENT_REPORTS = 3
"""Number of missing reports after which an instance is silent."""
FORGOTTEN = 600.0
"""Seconds after which a silent instance is no longer shown."""
REST_REPORTS = 2
"""Reports after a move of partitions until every instance has reported its current ones."""
SLOW_SHARE = 1 / 3
"""An instance is slow below this share of the others' rate per partition."""
SLOW_BEHIND = 10.0
"""Minimum backlog in seconds of work. With less, an instance has nothing to be fast with."""

NAMED = 3

State: TypeAlias = Literal["starting", "running", "rebalancing", "stopping", "silent"]

Source: TypeAlias = Literal["topic", "addresses", "none"]

NOT_CONFIGURED = (
    "no group view configured: set group_view_topic, a topic that the instances tell one another "
    "in, or group_view_addresses, where their consoles are"
)


class Heard(NamedTuple):
    """The last report of an instance, its age in seconds, and the instance's rate."""

    report: InstanceReport
    seconds: float
    per_second: float | None = None


class SeenInstance(msgspec.Struct, frozen=True, kw_only=True):
    """An instance of the group. ``report`` is the last one, received ``heard_seconds`` ago.

    ``label`` is a name that is unique here. ``here`` marks the instance that answers. It settles
    ``per_second`` records, None if unknown. ``slow`` is a text if this is less than others do, else
    empty.
    """

    label: str
    here: bool
    state: State
    heard_seconds: float
    held_partitions: int
    per_second: float | None
    slow: str
    report: InstanceReport


class Remark(msgspec.Struct, frozen=True, kw_only=True):
    """A problem of the group in a sentence. It needs action or passes by itself.

    ``code`` is the rule that found it: ``silent``, ``overlap``, ``unheld``, ``diagnosis``,
    ``slow``, ``rebalancing`` or ``releases``. ``labels`` are the instances that it is about.
    """

    code: str
    level: Level
    sentence: str
    labels: tuple[str, ...] = ()


class GroupView(msgspec.Struct, frozen=True, kw_only=True):
    """The instances of a group, by their reports. ``version`` is that of this layout.

    ``source`` is the kind of source and ``place`` its name. ``remarks`` are in order of repair, and
    ``text`` is the first in a line. ``troubles`` are the reasons why reports are not written or
    received. ``partitions`` is the number of held ones. ``unheld`` is the number of those without
    an instance, None if unknown.
    """

    version: int
    group: str
    source: Source
    place: str
    taken_at: float
    text: str
    healthy: bool
    instances: tuple[SeenInstance, ...]
    remarks: tuple[Remark, ...]
    troubles: tuple[str, ...]
    partitions: int
    unheld: int | None
    per_second: float | None
    backlog: int | None


class Looker(NamedTuple):
    """The reader of the view, with source and time; ``here`` is its instance."""

    group: str
    here: str
    host: str
    source: Source = "none"
    place: str = ""
    taken_at: float = 0.0
    troubles: tuple[str, ...] = ()


def group_view(heard: Sequence[Heard], sizes: Mapping[str, int], looker: Looker) -> GroupView:
    """Return the group. ``sizes`` are the known numbers of partitions of topics."""
    shown = [each for each in heard if each.report.group == looker.group and not _over(each)]
    shown.sort(key=lambda each: (each.report.name, each.report.started_at, each.report.instance))
    labels = _labels([each.report for each in shown])
    live = [each for each in shown if _state(each) != "silent"]
    rest = at_rest(live)
    slow = slow_ones(live) if rest else {}
    seen = tuple(
        SeenInstance(
            label=labels[each.report.instance],
            here=each.report.instance == looker.here,
            state=_state(each),
            heard_seconds=each.seconds,
            held_partitions=each.report.held_partitions,
            per_second=None if _state(each) == "silent" else each.per_second,
            slow=slow.get(each.report.instance, ""),
            report=_linked(each.report, looker.host),
        )
        for each in shown
    )
    missing = unheld([each.report for each in live], sizes) if rest and sizes else None
    remarks = tuple(_remarks(seen, missing or [], rest=rest))
    rates = [each.per_second for each in live if each.per_second is not None]
    backlogs = [each.report.backlog for each in live if each.report.backlog is not None]
    return GroupView(
        version=VERSION,
        group=looker.group,
        source=looker.source,
        place=looker.place,
        taken_at=looker.taken_at,
        text=_text(looker, seen, remarks),
        healthy=all(each.level != "fail" for each in remarks),
        instances=seen,
        remarks=remarks,
        troubles=looker.troubles,
        partitions=len(_holders(live)),
        unheld=None if missing is None else len(missing),
        per_second=sum(rates) if rates else None,
        backlog=sum(backlogs) if len(backlogs) == len(live) else None,
    )


# --- one instance ---


def _state(each: Heard) -> State:
    report = each.report
    if each.seconds > SILENT_REPORTS * report.every:
        return "silent"
    if report.phase in {"stopping", "stopped"}:
        return "stopping"
    if report.rebalance_seconds is not None:
        return "rebalancing"
    return "running" if report.phase == "running" and report.joined else "starting"


def _over(each: Heard) -> bool:
    """Return whether it is no longer shown: silent after a stop, or silent for long."""
    if _state(each) != "silent":
        return False
    return each.seconds > FORGOTTEN or each.report.phase in {"stopping", "stopped"}


def _labels(reports: Sequence[InstanceReport]) -> dict[str, str]:
    names = Counter(each.name for each in reports)
    exact = Counter((each.name, each.pid) for each in reports)
    labels = {}
    for each in reports:
        label = each.name
        if names[each.name] > 1:
            label += f" ({each.pid})"
        if exact[each.name, each.pid] > 1:
            label = f"{each.name} ({each.instance.rpartition('-')[2]})"
        labels[each.instance] = label
    return labels


def _linked(report: InstanceReport, host: str) -> InstanceReport:
    """Return the report, without its address if a page served at ``host`` must not link to it.

    Any writer to the topic can set the address. And another machine's 127.0.0.1 is not this one.
    """
    try:
        parts = urlsplit(report.url)
        fits = parts.scheme in {"http", "https"} and bool(parts.hostname)
        fits = fits and (report.host == host or parts.hostname not in LOOPBACK)
    except ValueError:
        fits = False
    return report if fits else msgspec.structs.replace(report, url="")


# --- several together ---


def at_rest(live: Sequence[Heard]) -> bool:
    """Return whether no partition has moved since all instances sent their reports."""
    return all(_state(each) == "running" and _rested(each.report) for each in live)


def _rested(report: InstanceReport) -> bool:
    moved = report.rebalanced_at
    return moved is None or report.at - moved > REST_REPORTS * report.every


def slow_ones(live: Sequence[Heard]) -> dict[str, str]:
    """Return the slow instances with a text: a third of the others' rate per partition.

    Only an instance with a backlog is judged. Without one, it processes all that arrives.
    """
    rates = {
        each.report.instance: each.per_second / each.report.held_partitions
        for each in live
        if each.per_second is not None and each.report.held_partitions
    }
    found = {}
    for each in live:
        own = rates.get(each.report.instance)
        others = [rate for name, rate in rates.items() if name != each.report.instance]
        if own is None or each.per_second is None or not others:
            continue
        usual = median(others)
        behind = (each.report.backlog or 0) > SLOW_BEHIND * each.per_second
        if behind and own < SLOW_SHARE * usual:
            found[each.report.instance] = (
                f"settles {own:,.1f} records a second for each partition, others {usual:,.1f}"
            )
    return found


def _holders(live: Sequence[Heard] | Sequence[SeenInstance]) -> dict[tuple[str, int], list[str]]:
    """Return the instances that hold each partition."""
    found: dict[tuple[str, int], list[str]] = {}
    for each in live:
        for topic, numbers in each.report.partitions.items():
            for number in numbers:
                found.setdefault((topic, number), []).append(each.report.instance)
    return found


def unheld(reports: Sequence[InstanceReport], sizes: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return the partitions of the read topics that no instance holds."""
    held = {
        (topic, number)
        for report in reports
        for topic, numbers in report.partitions.items()
        for number in numbers
    }
    read = sorted({topic for report in reports for topic in report.topics})
    return [
        (topic, number)
        for topic in read
        for number in range(sizes.get(topic, 0))
        if (topic, number) not in held
    ]


# --- in words ---


def _remarks(
    seen: Sequence[SeenInstance], missing: Sequence[tuple[str, int]], *, rest: bool
) -> Iterator[Remark]:
    """Yield the remarks, in order of repair."""
    live = [each for each in seen if each.state != "silent"]
    held = _holders(live)
    yield from _silent([each for each in seen if each.state == "silent"], held)
    if rest:
        yield from _twice(live, held)
        if missing:
            names = some((f"{topic}-{number}" for topic, number in missing), NAMED)
            text = f"no instance holds {names}: no report of the group names them"
            yield Remark(code="unheld", level="fail", sentence=text)
    # A rebalance is reported below, earlier than a diagnosis would report it.
    wrong = [each for each in live if each.report.level and each.report.code != REBALANCE.code]
    for each in sorted(wrong, key=lambda one: one.report.healthy):
        level: Level = "warn" if each.report.healthy else "fail"
        text = f"{each.label}: {each.report.text}"
        yield Remark(code="diagnosis", level=level, sentence=text, labels=(each.label,))
    for each in live:
        if each.slow:
            text = f"{each.label} {each.slow}"
            yield Remark(code="slow", level="warn", sentence=text, labels=(each.label,))
    for each in live:
        seconds = each.report.rebalance_seconds
        if seconds is not None:
            text = f"{each.label} has been in a rebalance for {in_words(seconds)}"
            yield Remark(code="rebalancing", level="warn", sentence=text, labels=(each.label,))
    yield from _releases(live)


def _silent(
    silent: Sequence[SeenInstance], held: Mapping[tuple[str, int], list[str]]
) -> Iterator[Remark]:
    for each in silent:
        own = [
            (topic, number)
            for topic, numbers in each.report.partitions.items()
            for number in numbers
        ]
        kept = sum(partition not in held for partition in own)
        text = f"{each.label} has not been heard for {in_words(each.heard_seconds)}"
        if kept:
            text += f"; it had {counted(kept, 'partition')} that no other instance has taken over"
        yield Remark(
            code="silent",
            level="fail" if kept else "warn",
            sentence=text,
            labels=(each.label,),
        )


def _twice(
    live: Sequence[SeenInstance], held: Mapping[tuple[str, int], list[str]]
) -> Iterator[Remark]:
    labels = {each.report.instance: each.label for each in live}
    twice = {partition: names for partition, names in held.items() if len(names) > 1}
    if not twice:
        return
    names = some((f"{topic}-{number}" for topic, number in sorted(twice)), NAMED)
    who = tuple(sorted({labels[name] for names in twice.values() for name in names}))
    text = f"{' and '.join(who)} both say that they hold {names}"
    yield Remark(code="overlap", level="fail", sentence=text, labels=who)


def _releases(live: Sequence[SeenInstance]) -> Iterator[Remark]:
    releases = sorted({each.report.software for each in live})
    if len(releases) > 1:
        text = f"they are of different releases: {', '.join(releases)}"
        yield Remark(code="releases", level="warn", sentence=text)


def _text(looker: Looker, seen: Sequence[SeenInstance], remarks: Sequence[Remark]) -> str:
    if looker.source == "none":
        return NOT_CONFIGURED
    if not seen:
        return "no instance has been heard yet"
    if not remarks and looker.troubles:
        return f"some instances may be missing: {looker.troubles[0]}"
    if not remarks:
        return f"{HEALTHY}: {counted(len(seen), 'instance')}"
    more = f" (and {len(remarks) - 1} more)" if len(remarks) > 1 else ""
    return f"{remarks[0].sentence}{more}"
