"""``keyshared dlq replay``: a plan, and its execution on request."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kafka_keyshared.cli.dlq_options import (
    LetterTopicOptions,
    Progress,
    ProgressPlace,
    absent,
    cut,
    hint,
    loaded,
    others,
    printable,
    reading,
)
from kafka_keyshared.cli.no_broker import AFTER_STOP, Away
from kafka_keyshared.cli.output import Justify, OutputFormat, write_note, write_result, write_table
from kafka_keyshared.dlq import scan
from kafka_keyshared.dlq.filter import Choice
from kafka_keyshared.dlq.letter import LetterPlace
from kafka_keyshared.dlq.payload import Decoder, PayloadFormat
from kafka_keyshared.dlq.replay import BATCH, Keeper, Replay, ReplayOutcome
from kafka_keyshared.dlq.replay_log import KafkaProgress
from kafka_keyshared.dlq.replay_plan import Order, ReplayPlan
from kafka_keyshared.dlq.send import PARTITIONERS, KafkaSender
from kafka_keyshared.dlq.topic_identity import SameTopic, can_be_asked, ids_of
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.platform.signals import stop_signals

ORDERS: Mapping[str, Order] = {"key": "key", "partition": "partition"}


@dataclass(frozen=True, slots=True)
class ReplayArguments:
    """The values from the command line."""

    where: LetterTopicOptions
    choice: Choice
    execute: bool
    to: str | None
    known: ProgressPlace
    rate: float | None
    max_replays: int
    order: str
    partitioner: str | None
    max_letters: int


def replay_verb(arguments: ReplayArguments, output: OutputFormat) -> int:
    """Print the plan; with ``--execute`` run it and print the outcome."""
    topic = arguments.where.name()
    _check(arguments, topic)
    conf = arguments.where.conf()
    away = Away(write_note)
    with arguments.known.of(conf, topic, away) as progress, reading(conf, away) as consumer:
        bounds = scan.bounds_of(consumer, topic)
        same = SameTopic(topic, None)
        known = True
        if arguments.execute:
            _begin(progress, bounds)
            # Queried before planning, so that the whole plan is of this topic.
            same = SameTopic(topic, ids_of(conf, topic) if can_be_asked(conf) else None)
            bounds = scan.bounds_of(consumer, topic)
        else:
            known = loaded(progress)
        partitions = scan.partitions_of(consumer)
        plan = ReplayPlan(
            arguments.max_replays, ORDERS[arguments.order], arguments.max_letters
        ).filled(scan.letters(consumer, topic, arguments.choice, bounds, patience=away), progress)
        if not plan.letters and plan.refused.foreign:
            hint(consumer, topic)
        told = _told(arguments, topic, plan, partitions, progress, known=known)
        if output is OutputFormat.TABLE:
            write_plan(told)
        for line in told["notes"]:
            write_note(line)
        if not arguments.execute:
            if output is not OutputFormat.TABLE:
                write_result(told, output, "replay")
            write_note(
                "nothing was sent: give --execute to send the records" if plan.rows else _NOTHING
            )
            return 0
        sender = KafkaSender(conf, arguments.to, partitions, arguments.partitioner, away)
        keeper = ReplayProgressLog(progress, len(plan.rows), write_note)
        with _interrupts(away) as interrupted:

            def ended() -> bool:
                return interrupted() or progress.lost is not None or same.lost() is not None

            outcome = Replay(plan, sender, keeper, rate=arguments.rate, stopped=ended).run(
                lambda: scan.letters(
                    consumer, topic, Choice(), bounds, patience=away, stopped=ended
                )
            )
            was_interrupted = interrupted()
    outcome.halted = outcome.halted or progress.lost or same.lost()
    _write_outcome(told, outcome, output, interrupted=was_interrupted)
    return 0 if outcome.whole and not was_interrupted else 1


def _check(arguments: ReplayArguments, topic: str) -> None:
    if arguments.order not in ORDERS:
        raise ConfigError(f"--order {arguments.order}: give key or partition")
    if arguments.partitioner not in (None, *PARTITIONERS):
        raise ConfigError(
            f"--partitioner {arguments.partitioner}: give one of {', '.join(PARTITIONERS)}"
        )
    if arguments.to == topic:
        raise ConfigError(f"--to {topic}: a replay would read its own letters; name another topic")


def _write_outcome(
    told: Mapping[str, Any], outcome: ReplayOutcome, output: OutputFormat, *, interrupted: bool
) -> None:
    became = _became(outcome, interrupted=interrupted)
    if outcome.halted is not None:
        write_note(f"the replay ended early: {outcome.halted}")
    if outcome.left:
        write_note("run the same command again to continue")
    if output is OutputFormat.TABLE:
        write_outcome(became)
    else:
        write_result({**told, **became}, output, "replay")


_NOTHING = "there is nothing to send"


def _begin(progress: Progress, bounds: scan.Bounds) -> None:
    if not isinstance(progress, KafkaProgress):
        progress.open()
        return
    progress.open(write_note)
    progress.forget(bounds)


def _told(
    arguments: ReplayArguments,
    topic: str,
    plan: ReplayPlan,
    partitions: Mapping[str, int],
    progress: Progress,
    *,
    known: bool,
) -> dict[str, Any]:
    """Return the plan as it is printed; None for replay counts that are not ``known``."""
    targets = _targets(arguments, plan.targets())
    lanes, most = plan.keys()
    refused = plan.refused
    decoder = Decoder(PayloadFormat.AUTO)
    return {
        "topic": topic,
        "executed": arguments.execute,
        "to_replay": len(plan.rows),
        "to": dict(sorted(targets.items())),
        "partitions": {name: partitions.get(name) for name in sorted(targets)},
        "order": f"per {arguments.order} of the source",
        "lanes": lanes,
        "lanes_to": _targets(arguments, plan.lanes()),
        "without_order": plan.keyless().total(),
        "keyless_to": _targets(arguments, plan.keyless()),
        "most": [{"key": decoder.plain(key), "letters": count} for key, count in most],
        "already_replayed": refused.already if known else None,
        "copies": refused.copies,
        "guarded": refused.guarded,
        "foreign": refused.foreign,
        "unreadable": refused.unreadable,
        "examples": {
            why: [str(place) for place in places] for why, places in refused.examples.items()
        },
        "progress": str(progress),
        "notes": _notes(arguments, plan, partitions, progress, known=known),
    }


def _targets(arguments: ReplayArguments, sources: Counter[str]) -> Counter[str]:
    """Return counts by source topic as counts by target topic."""
    if arguments.to is None or not sources:
        return sources
    return Counter({arguments.to: sources.total()})


def _notes(
    arguments: ReplayArguments,
    plan: ReplayPlan,
    partitions: Mapping[str, int],
    progress: Progress,
    *,
    known: bool,
) -> list[str]:
    """Return notes for the user before the execution."""
    notes = others(progress)
    if not known:
        notes.append("letters that were replayed before are counted, too; --execute is refused")
    elif not len(progress):
        notes.append(f"no earlier replay is recorded ({progress})")
    if isinstance(progress, KafkaProgress) and (why := progress.forgotten()):
        notes.append(why)
    for name in sorted(_targets(arguments, plan.targets())):
        if name not in partitions:
            notes.append(f"topic {name!r} does not exist: its letters will be refused")
    if arguments.to is None and arguments.partitioner is None:
        for name, highest in sorted(plan.highest_partitions().items()):
            if highest >= partitions.get(name, highest + 1):
                notes.append(
                    f"{name!r} has {partitions[name]} partitions now, and letters come from "
                    f"partition {highest}: there the key chooses the partition"
                )
    if (gone := absent(arguments.choice)) is not None:
        notes.append(gone)
    if plan.refused.guarded:
        notes.append(
            f"{plan.refused.guarded:,} letters were replayed {arguments.max_replays} times or more "
            "and are skipped: find out why they fail, or raise --max-replays"
        )
    notes.append(f"a crash or a kill repeats at most {BATCH} letters")
    return notes


def _became(outcome: ReplayOutcome, *, interrupted: bool) -> dict[str, Any]:
    return {
        "replayed": outcome.replayed,
        "refused": outcome.refused,
        "behind_refused": outcome.behind,
        "gone": outcome.gone,
        "left": outcome.left,
        "why": dict(outcome.why.most_common(10)),
        "refused_examples": {str(place): why for place, why in outcome.examples[:10]},
        "interrupted": interrupted,
        "halted": outcome.halted,
    }


@contextmanager
def _interrupts(away: Away) -> Iterator[Callable[[], bool]]:
    """Yield a stop check for the first SIGINT or SIGTERM; a second signal interrupts at once."""
    stopped = False

    def stop() -> None:
        nonlocal stopped
        if stopped:
            raise KeyboardInterrupt
        stopped = True
        away.stop()
        write_note(
            f"stopping: waiting up to {AFTER_STOP:g} s for records in flight; press Ctrl-C "
            "again to "
            "stop at once"
        )

    with stop_signals(stop):
        yield lambda: stopped


# --- tables and progress ---


TELL_EVERY = 10.0
"""Seconds between two progress messages of a replay."""

KEY_SHOWN = 50
MOST_PLACES = 5
"""Characters of a key, and number of places, in a cell."""

_NOT_SENT: Mapping[str, str] = {
    "already_replayed": "replayed before",
    "copies": "another dead letter of the same record",
    "guarded": "replayed too often (--max-replays)",
    "foreign": "not a dead letter of this package",
    "unreadable": "unreadable dead letter",
}

_BECAME: Mapping[str, str] = {
    "replayed": "sent and acknowledged",
    "refused": "refused",
    "behind_refused": "not sent: behind a refused record of the same key",
    "gone": "no longer in the topic",
    "left": "left for the next replay",
}


def write_plan(told: Mapping[str, Any]) -> None:
    """Print the planned dead letters by target, and those not sent."""
    lanes = "keys" if "key" in told["order"] else "source partitions"
    if told["to"]:
        keyless: dict[str, Justify] = {"without a key": "right"} if told["without_order"] else {}
        _table(
            f"{told['topic']}: to replay",
            {"to": "left", "partitions": "right", "letters": "right", lanes: "right", **keyless},
            [
                (
                    to,
                    "none" if told["partitions"][to] is None else told["partitions"][to],
                    count,
                    told["lanes_to"][to],
                    *([told["keyless_to"][to]] if keyless else []),
                )
                for to, count in told["to"].items()
            ],
        )
    not_sent = [
        (words, told[why], _places(told["examples"].get(why, ())))
        for why, words in _NOT_SENT.items()
        if told[why]
    ]
    if not_sent:
        columns: dict[str, Justify] = {"why": "left", "letters": "right", "such as": "left"}
        _table(f"{told['topic']}: not sent", columns, not_sent)
    if told["most"]:
        rows = [
            (cut(str(next(iter(each["key"].values()))), KEY_SHOWN), each["letters"])
            for each in told["most"]
        ]
        _table("", {"keys with the most letters": "left", "letters": "right"}, rows)


def write_outcome(became: Mapping[str, Any]) -> None:
    """Print the outcome of the planned dead letters."""
    rows = [(words, became[what]) for what, words in _BECAME.items() if became[what]]
    if rows:
        _table("outcome", {"": "left", "letters": "right"}, rows)
    if became["why"]:
        places: dict[str, list[str]] = {}
        for at, why in became["refused_examples"].items():
            places.setdefault(why, []).append(at)
        _table(
            "refused",
            {"why": "left", "letters": "right", "such as": "left"},
            [(why, count, _places(places.get(why, ()))) for why, count in became["why"].items()],
        )


def _table(title: str, columns: Mapping[str, Justify], rows: Iterable[tuple[Any, ...]]) -> None:
    cells = (
        tuple(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row) for row in rows
    )
    write_table(title, columns, list(map(printable, cells)))


def _places(places: Iterable[str]) -> str:
    some = list(places)
    return ", ".join(some[:MOST_PLACES]) + (", …" if len(some) > MOST_PLACES else "")


class ReplayProgressLog:
    """Stores progress, and prints it from time to time."""

    def __init__(
        self,
        keeper: Keeper,
        wanted: int,
        note: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._keeper = keeper
        self._wanted = wanted
        self._note = note
        self._clock = clock
        self._kept = 0
        self._began = self._told_at = clock()

    def add(self, letters: Iterable[tuple[LetterPlace, int]]) -> None:
        """Store a batch."""
        batch = list(letters)
        self._keeper.add(batch)
        self._kept += len(batch)
        now = self._clock()
        if now - self._told_at >= TELL_EVERY and self._kept < self._wanted:
            self._told_at = now
            left = (now - self._began) * (self._wanted / self._kept - 1)
            self._note(
                f"replayed {self._kept:,} of {self._wanted:,} letters, about {left:.0f} s left"
            )
