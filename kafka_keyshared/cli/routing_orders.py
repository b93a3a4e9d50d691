"""``keyshared routing assign`` and ``routing filter``: orders to a running instance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from kafka_keyshared.cli.instances import may_order, only_subscription, status_of
from kafka_keyshared.cli.output import OutputFormat, write_note, write_result, write_table
from kafka_keyshared.core.routing.filters import Filters, OnUnmatched, check_unmatched
from kafka_keyshared.core.routing.port import Move, Routing, Unowned, moves
from kafka_keyshared.core.routing.ranges import read_back
from kafka_keyshared.core.routing.ring import VnodeRing
from kafka_keyshared.core.routing.slot_ranges import SlotRange, parse_ranges
from kafka_keyshared.errors import ConfigError, KeySharedError
from kafka_keyshared.observability.admin_client import AdminClient
from kafka_keyshared.status import SubscriptionStatus

EVERY_KEY = "*"
"""The notation for a worker that takes every key."""

LOOKS_AT_NO_KEY = ("exclusive", "unordered")

Takers = dict[str, list[str]]
"""The patterns of each worker."""


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
        cls, text: str, worker: str | None, *, unassign: bool, take_over: bool, timeout: float
    ) -> SlotAssignment:
        """Return the request; raise :class:`ConfigError` unless ``text`` is exactly one range.

        It also raises for both a worker and ``unassign``, and for neither.
        """
        if unassign is (worker is not None):
            raise ConfigError(f"routing assign {text}: give either a WORKER or --unassign")
        first, *more = parse_ranges(text)
        if more:
            raise ConfigError(f"routing assign {text}: give one range, such as {first}")
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
    url, token = may_order("routing assign", url, token_file, execute=execute)
    found = planned_moves(only_subscription(status_of(url)), asked)
    if token is None:
        _print_moves(found, output)
        if output is OutputFormat.TABLE:
            write_note("nothing has changed; add --execute to make the change")
        return 0
    first, last = asked.slots
    instance = AdminClient(url, token)
    done = instance.assign(
        first, last, asked.worker, take_over=asked.take_over, timeout=asked.timeout
    )
    write_result(done.result["ranges"], output, "ranges by worker")
    return 0


def planned_moves(sub: SubscriptionStatus, asked: SlotAssignment) -> list[Move]:
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
        hint = "" if asked.take_over else "; --take-over takes them"
        overlaps = hint if "overlap" in str(error) else ""
        raise KeySharedError(f"{error}{overlaps}") from error


def _print_moves(found: list[Move], output: OutputFormat) -> None:
    rows = [
        {"slots": f"{each.first}-{each.last}", "before": _named(each.before),
         "after": _named(each.after)}
        for each in found
    ]  # fmt: skip
    if output is not OutputFormat.TABLE:
        write_result({"moves": rows}, output, "routing assign")
        return
    write_table(
        "what would move",
        {"slots": "left", "of": "left", "goes to": "left"},
        [(row["slots"], row["before"], row["after"]) for row in rows],
    )


def _named(owner: str | Unowned) -> str:
    return owner.name.lower() if isinstance(owner, Unowned) else owner


# --- filter ---


class Filtering(NamedTuple):
    """The values from the command line: the worker is to take the keys that match a pattern.

    Without a pattern it takes every key. ``timeout`` is in seconds.
    """

    worker: str
    patterns: Sequence[str]
    timeout: float

    @classmethod
    def typed(
        cls, worker: str, patterns: Sequence[str], *, every_key: bool, timeout: float
    ) -> Filtering:
        """Return the request; raise :class:`ConfigError` for patterns and every key, or neither."""
        if every_key is bool(patterns):
            raise ConfigError(f"routing filter {worker}: give either patterns or --every-key")
        return cls(worker, tuple(patterns), timeout)


def filter_verb(
    url: str | None,
    asked: Filtering,
    token_file: Path | None,
    *,
    execute: bool,
    output: OutputFormat,
) -> int:
    """Print the planned change; with ``execute`` make it, and print the new filters."""
    url, token = may_order("routing filter", url, token_file, execute=execute)
    sub = only_subscription(status_of(url))
    before, after = planned_filters(sub, asked)
    if token is None:
        _print_filters(sub, before, after, output)
        return 0
    done = AdminClient(url, token).filter(asked.worker, asked.patterns, asked.timeout)
    takes = done.result["filters"]
    found = {name: " ".join(those) or EVERY_KEY for name, those in takes.items()}
    write_result(takes if output is not OutputFormat.TABLE else found, output, "filters")
    return 0


def planned_filters(sub: SubscriptionStatus, asked: Filtering) -> tuple[Takers, Takers]:
    """Return the patterns of each worker, before and after.

    Raises :class:`KeySharedError` for a change that the instance would refuse.
    """
    if sub.routing in LOOKS_AT_NO_KEY:
        raise KeySharedError(
            f"the instance has routing={sub.routing!r}, which ignores the key: its workers have no "
            "filters"
        )
    there = [worker.name for worker in sub.workers if worker.state != "gone"]
    known = [*dict.fromkeys((*there, *sub.ranges, *sub.filters))]
    if asked.worker not in known:
        raise KeySharedError(
            f"there is no worker {asked.worker!r}; give one of {', '.join(known)}, or let it join "
            "first"
        )
    declared: Mapping[str, Sequence[str]] = sub.filters or dict.fromkeys(there, ())
    now = Filters(declared)
    then = now.with_worker(asked.worker, asked.patterns)
    # Only a worker with ranges may own none of some slots. All others own some of each.
    routing: Routing = read_back(sub.ranges, there) if sub.routing == "sticky" else VnodeRing(there)
    try:
        check_unmatched(routing, then, cast("OnUnmatched | None", sub.on_unmatched))
    except ConfigError as error:
        raise KeySharedError(str(error)) from error
    return _takers(now), _takers(then)


def _takers(filters: Filters) -> Takers:
    return {
        name: [each.decode("utf-8", "backslashreplace") for each in patterns]
        for name, patterns in filters.patterns
    }


def _print_filters(
    sub: SubscriptionStatus, before: Takers, after: Takers, output: OutputFormat
) -> None:
    rows: list[dict[str, Any]] = [
        {"worker": name, "takes": before.get(name), "would_take": patterns}
        for name, patterns in after.items()
    ]
    if output is not OutputFormat.TABLE:
        write_result({"workers": rows}, output, "routing filter")
        return
    write_table(
        "what would change",
        {"worker": "left", "takes": "left", "would take": "left"},
        [(row["worker"], _written(row["takes"]), _written(row["would_take"])) for row in rows],
    )
    if all(after.values()):
        write_note(f"no worker takes every key; on_unmatched={sub.on_unmatched!r}")
    write_note("nothing has changed; add --execute to make the change")


def _written(patterns: Sequence[str] | None) -> str:
    if patterns is None:
        return "keys of the other workers"
    return " ".join(patterns) or EVERY_KEY
