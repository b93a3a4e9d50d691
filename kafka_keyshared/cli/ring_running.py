"""``keyshared ring show`` and ``ring assign`` for a running instance."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from kafka_keyshared.cli.instances import may_order, only_subscription, status_of
from kafka_keyshared.cli.output import Justify, OutputFormat, write_note, write_result, write_table
from kafka_keyshared.core.routing.port import Move, Unowned, moves
from kafka_keyshared.core.routing.ranges import read_back
from kafka_keyshared.core.routing.slot_ranges import SlotRange, parse_ranges
from kafka_keyshared.errors import ConfigError, KeySharedError
from kafka_keyshared.hashing import SLOTS
from kafka_keyshared.observability.admin_client import AdminClient
from kafka_keyshared.status import SubscriptionStatus

AWAY = "away"
"""The state of a declared worker that is not there."""


# --- show ---


def show_running_verb(url: str, output: OutputFormat) -> int:
    """Print the slots of each worker in an instance, and its draining slots."""
    status = status_of(url, pending=True)
    sub = only_subscription(status)
    found = {
        "slots": SLOTS,
        "group": status.group,
        "routing": sub.routing,
        "on_unmatched": sub.on_unmatched,
        "workers": [*_workers(sub)],
        "unassigned": sub.unassigned,
        "draining": [*_draining(sub)],
        "drained": sub.drained_slots,
    }
    if output is OutputFormat.TABLE:
        _print(found)
    else:
        write_result(found, output, "ring")
    return 0


def _workers(sub: SubscriptionStatus) -> Iterable[dict[str, Any]]:
    """Return a row for each worker that is there, then for those that are away."""
    there = [worker for worker in sub.workers if worker.state != "gone"]
    for worker in there:
        yield {
            "name": worker.name,
            "state": worker.state,
            "share": worker.share,
            "slots": round(worker.share * SLOTS),
            "leased": worker.leased,
            "ranges": sub.ranges.get(worker.name, ""),
            "filters": [*sub.filters.get(worker.name, ())],
        }
    names = {worker.name for worker in there}
    for name in dict.fromkeys((*sub.ranges, *sub.filters)):
        if name not in names:
            ranges, filters = sub.ranges.get(name, ""), [*sub.filters.get(name, ())]
            yield {"name": name, "state": AWAY, "share": 0.0, "slots": 0, "leased": 0,
                   "ranges": ranges, "filters": filters}  # fmt: skip


def _draining(sub: SubscriptionStatus) -> Iterable[dict[str, Any]]:
    """Return a row for each draining slot: holder, next owner, and the records that delay it."""
    held: dict[tuple[str, int | None], list[str]] = {}
    for each in sub.pending or ():
        if each.draining:
            name = f"{each.topic}-{each.partition}@{each.offset}{' (runs)' * each.running}"
            held.setdefault((each.worker, each.slot), []).append(name)
    for worker in sub.workers:
        for drains in worker.draining:
            yield {
                "slot": drains.slot,
                "holder": worker.name,
                "owner": drains.owner,
                "pending": drains.pending,
                "blocked": drains.blocked,
                "records": held.get((worker.name, drains.slot), []),
            }


def _print(found: dict[str, Any]) -> None:
    columns: dict[str, Justify] = {
        "worker": "left",
        "state": "left",
        "share": "right",
        "slots": "right",
        "leased": "right",
        "ranges": "left",
        "filters": "left",
    }
    write_table(
        f"group {found['group']}, routing {found['routing']}",
        columns,
        [
            (row["name"], row["state"], f"{row['share']:.2%}", f"{row['slots']:,}",
             f"{row['leased']:,}", row["ranges"], " ".join(row["filters"]))
            for row in found["workers"]
        ],
    )  # fmt: skip
    if found["unassigned"]:
        write_note(f"nobody has {found['unassigned']}; on_unmatched={found['on_unmatched']!r}")
    if not found["draining"]:
        write_note(f"no slot drains; {found['drained']:,} have so far")
        return
    write_table(
        f"{len(found['draining']):,} slots drain, {found['drained']:,} have so far",
        {"slot": "right", "held by": "left", "for": "left", "pending": "right",
         "blocked": "right", "records": "left"},
        [
            (str(row["slot"]), row["holder"], row["owner"] or "nobody", str(row["pending"]),
             str(row["blocked"]), " ".join(row["records"][:3]))
            for row in found["draining"]
        ],
    )  # fmt: skip


# --- assign ---


class SlotAssignment(NamedTuple):
    """The values from the command line: the slots, and their new worker or None for no worker.

    ``timeout`` is in seconds.
    """

    slots: SlotRange
    worker: str | None
    take_over: bool
    timeout: float

    @classmethod
    def typed(
        cls, text: str, worker: str | None, *, nobody: bool, take_over: bool, timeout: float
    ) -> SlotAssignment:
        """Return the request; raise :class:`ConfigError` unless ``text`` is exactly one range.

        It also raises for both a worker and ``nobody``, and for neither.
        """
        if nobody is (worker is not None):
            raise ConfigError(f"ring assign {text}: give either a WORKER or --nobody")
        first, *more = parse_ranges(text)
        if more:
            raise ConfigError(f"ring assign {text}: give one range, such as {first}")
        return cls(first, worker, take_over, timeout)


def assign_verb(
    url: str | None,
    asked: SlotAssignment,
    token_file: Path | None,
    *,
    execute: bool,
    output: OutputFormat,
) -> int:
    """Print the planned moves; with ``execute`` make them, and print the new ranges."""
    url, token = may_order("ring assign", url, token_file, execute=execute)
    found = plan(only_subscription(status_of(url)), asked)
    if token is None:
        _print_plan(found, output)
        if output is OutputFormat.TABLE:
            write_note("nothing has changed; --execute does it")
        return 0
    first, last = asked.slots
    instance = AdminClient(url, token)
    done = instance.assign(
        first, last, asked.worker, take_over=asked.take_over, timeout=asked.timeout
    )
    write_result(done.result["ranges"], output, "ranges by worker")
    return 0


def plan(sub: SubscriptionStatus, asked: SlotAssignment) -> list[Move]:
    """Return the planned moves; raise :class:`KeySharedError` if the instance would refuse them."""
    if sub.routing != "sticky":
        raise KeySharedError(
            f"the instance has routing={sub.routing!r}: ranges are assigned with routing='sticky'"
        )
    there = [worker.name for worker in sub.workers if worker.state != "gone"]
    try:
        now = read_back(sub.ranges, there)
        return [*moves(now, now.given(*asked.slots, asked.worker, take_over=asked.take_over))]
    except ConfigError as error:
        hint = "" if asked.take_over else "; --take-over takes them over"
        overlaps = hint if "overlap" in str(error) else ""
        raise KeySharedError(f"{error}{overlaps}") from error


def _print_plan(found: list[Move], output: OutputFormat) -> None:
    rows = [
        {"slots": f"{each.first}-{each.last}", "before": _named(each.before),
         "after": _named(each.after)}
        for each in found
    ]  # fmt: skip
    if output is not OutputFormat.TABLE:
        write_result({"moves": rows}, output, "ring assign")
        return
    columns: dict[str, Justify] = {"slots": "left", "of": "left", "goes to": "left"}
    write_table(
        "what would move",
        columns,
        [(row["slots"], row["before"], row["after"]) for row in rows],
    )


def _named(owner: str | Unowned) -> str:
    return owner.name.lower() if isinstance(owner, Unowned) else owner
