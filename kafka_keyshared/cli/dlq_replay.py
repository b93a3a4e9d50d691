"""``keyshared dlq replay``: says what it would do, and does it when told to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer

from kafka_keyshared.cli.letters import Where, printable, reading
from kafka_keyshared.cli.output import Justify, Output, write_note, write_result, write_table
from kafka_keyshared.dlq import scan
from kafka_keyshared.dlq.choice import Choice
from kafka_keyshared.dlq.journal import Journal
from kafka_keyshared.dlq.payload import Decoder, Payload
from kafka_keyshared.dlq.plan import Order, Plan, digest_of, mark_of
from kafka_keyshared.dlq.replay import BATCH, Outcome, Replay
from kafka_keyshared.dlq.send import PARTITIONERS, KafkaSender
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.runtime.signals import stop_signals

ORDERS: Mapping[str, Order] = {"key": "key", "partition": "partition"}


@dataclass(frozen=True, slots=True)
class ReplayArguments:
    """What the command line said."""

    where: Where
    choice: Choice
    execute: bool
    to: str | None
    state: Path | None
    rate: float | None
    max_replays: int
    order: str
    partitioner: str | None
    max_letters: int


def replay_verb(arguments: ReplayArguments, output: Output) -> int:
    """Print the plan; with ``--execute`` carry it out and print what became of it."""
    topic = arguments.where.name()
    if arguments.order not in ORDERS:
        raise ConfigError(f"--order {arguments.order}: give key or partition")
    if arguments.partitioner not in (None, *PARTITIONERS):
        raise ConfigError(
            f"--partitioner {arguments.partitioner}: give one of {', '.join(PARTITIONERS)}"
        )
    if arguments.to == topic:
        raise ConfigError(f"--to {topic}: a replay would read its own letters; name another topic")
    journal = Journal(arguments.state or Path(f"{topic}.replay"), topic)
    conf = arguments.where.conf()
    with journal, reading(conf) as consumer:
        journal = journal.open() if arguments.execute else journal.load()
        bounds = scan.bounds_of(consumer, topic)
        partitions = _partitions(consumer)
        plan = _planned(arguments, consumer, topic, bounds, journal)
        told = _told(arguments, topic, plan, partitions, journal)
        if not arguments.execute:
            _write(told, output)
            write_note("nothing was sent: give --execute to do it" if plan.rows else _NOTHING)
            return 0
        for line in told["notes"]:
            write_note(line)
        sender = KafkaSender(conf, arguments.to, partitions, arguments.partitioner)
        with _interrupts() as stopped:
            replay = Replay(plan, sender, journal, rate=arguments.rate, stopped=stopped)
            outcome = replay.run(lambda: scan.letters(consumer, topic, Choice(), bounds))
            interrupted = stopped()
    _write({**told, **_became(outcome, interrupted=interrupted)}, output)
    return 0 if outcome.whole and not interrupted else 1


_NOTHING = "there is nothing to send"


def _partitions(consumer: Consumer) -> dict[str, int]:
    topics = consumer.list_topics(timeout=scan.ANSWER_TIMEOUT).topics
    return {name: len(topic.partitions) for name, topic in topics.items() if topic.partitions}


def _planned(
    arguments: ReplayArguments,
    consumer: Consumer,
    topic: str,
    bounds: scan.Bounds,
    journal: Journal,
) -> Plan:
    plan = Plan(arguments.max_replays, ORDERS[arguments.order], arguments.max_letters)
    for letter in scan.letters(consumer, topic, arguments.choice, bounds):
        digest = digest_of(letter)
        plan.add(letter, digest, already=mark_of(letter, digest) in journal)
    plan.close()
    return plan


def _told(
    arguments: ReplayArguments,
    topic: str,
    plan: Plan,
    partitions: Mapping[str, int],
    journal: Journal,
) -> dict[str, Any]:
    """Return the plan as it is printed."""
    sources = plan.targets()
    lanes, most = plan.keys()
    refused = plan.refused
    decoder = Decoder(Payload.AUTO)
    return {
        "topic": topic,
        "executed": arguments.execute,
        "to_replay": len(plan.rows),
        "to": dict(sorted(_targets(arguments, sources).items())),
        "order": f"per {arguments.order} of the source",
        "lanes": lanes,
        "without_order": plan.keyless(),
        "most": [{"key": decoder.plain(key), "letters": count} for key, count in most],
        "already_replayed": refused.already,
        "copies": refused.copies,
        "guarded": refused.guarded,
        "foreign": refused.foreign,
        "unreadable": refused.unreadable,
        "examples": {
            why: [str(place) for place in places] for why, places in refused.examples.items()
        },
        "state": str(journal.path),
        "notes": _notes(arguments, plan, partitions, journal),
    }


def _targets(arguments: ReplayArguments, sources: Mapping[str, int]) -> dict[str, int]:
    if arguments.to is None:
        return dict(sources)
    return {arguments.to: sum(sources.values())} if sources else {}


def _notes(
    arguments: ReplayArguments, plan: Plan, partitions: Mapping[str, int], journal: Journal
) -> list[str]:
    """Return what somebody should know before it is done."""
    notes = []
    if not len(journal):
        notes.append(f"no progress in {journal.path}: no letter counts as replayed before")
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
    if plan.refused.guarded:
        notes.append(
            f"{plan.refused.guarded:,} letters were replayed {arguments.max_replays} times or more "
            "and are refused: see why they fail, or raise --max-replays"
        )
    notes.append(f"a crash or a kill repeats at most {BATCH} letters")
    return notes


def _became(outcome: Outcome, *, interrupted: bool) -> dict[str, Any]:
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


def _write(told: Mapping[str, Any], output: Output) -> None:
    if output is not Output.TABLE:
        write_result(told, output, "replay")
        return
    columns: dict[str, Justify] = {"": "left", " ": "left"}
    rows = [
        printable((name.replace("_", " "), _cell(value)))
        for name, value in told.items()
        if value not in ([], {}, None)
    ]
    write_table(f"replay of {told['topic']}", columns, rows)


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Mapping):
        lines = (
            f"{name}: {', '.join(each) if isinstance(each, list) else _cell(each)}"
            for name, each in value.items()
        )
        return "\n".join(lines)
    if isinstance(value, list):
        return "\n".join(
            f"{next(iter(each['key'].values()))}: {each['letters']:,}"
            if isinstance(each, Mapping)
            else each
            for each in value
        )
    return str(value)


@contextmanager
def _interrupts() -> Iterator[Callable[[], bool]]:
    """Make the first SIGINT or SIGTERM a question to ask; a second one interrupts for good."""
    stopped = False

    def stop() -> None:
        nonlocal stopped
        if stopped:
            raise KeyboardInterrupt
        stopped = True
        write_note("stopping: what is on its way is waited for")

    with stop_signals(stop):
        yield lambda: stopped
