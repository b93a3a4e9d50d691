"""``keyshared routing show`` and ``routing where`` for a running instance."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from kafka_keyshared.cli.instances import only_subscription, status_of
from kafka_keyshared.cli.output import Justify, OutputFormat, write_note, write_result, write_table
from kafka_keyshared.cli.routing import RoutingArguments, steps, where
from kafka_keyshared.cli.settings import typed_key
from kafka_keyshared.core.keys.key_text import key_text
from kafka_keyshared.core.routing.ranges import read_back
from kafka_keyshared.core.routing.ring import VnodeRing
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.hashing import SLOTS
from kafka_keyshared.model import counted, does, in_words
from kafka_keyshared.observability.diagnosis.hot import rates
from kafka_keyshared.shared_status import HotKey
from kafka_keyshared.status import SubscriptionStatus, WorkerStatus

AWAY = "away"
"""The state of a declared worker that is not present."""

SHOWN = 10
"""Maximum number of records in a table."""

NEAR = 1e-6
"""Two shares of the slots are equal when they differ by less than this."""

_SHARED = "by the ring; workers share waiting records, so any of them may run it"
_ELSEWHERE = ("running", "stuck", "opening")
"""States of a lane whose head is at a worker, or gone."""


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
        write_result(found, output, "routing")
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
        write_note(
            f"without a worker: {found['unassigned']}; on_unmatched={found['on_unmatched']!r}"
        )
    if not found["draining"]:
        write_note(f"no slot drains now; {found['drained']:,} have drained")
        return
    write_table(
        f"{len(found['draining']):,} slots drain, {found['drained']:,} have drained",
        {"slot": "right", "held by": "left", "for": "left", "pending": "right",
         "blocked": "right", "records": "left"},
        [
            (str(row["slot"]), row["holder"], row["owner"] or "unassigned", str(row["pending"]),
             str(row["blocked"]), " ".join(row["records"][:3]))
            for row in found["draining"]
        ],
    )  # fmt: skip


# --- where ---


def where_running_verb(
    url: str, key: str | None, chosen: RoutingArguments, output: OutputFormat
) -> int:
    """Print the steps from a key to its worker in a running instance, and its current records."""
    if key is None:
        raise ConfigError("routing where --status-url: give a key, as text or as hex:…")
    status = status_of(url, pending=True)
    found = where_running(only_subscription(status), typed_key(key), chosen)
    if output is not OutputFormat.TABLE:
        write_result(found, output, "routing where")
        return 0
    write_table(
        f"worker of a key in group {status.group}",
        {"": "left", " ": "left", "  ": "left"},
        [*steps(found, "owner"), *_rows(found)],
    )
    return 0


def where_running(sub: SubscriptionStatus, key: bytes, chosen: RoutingArguments) -> dict[str, Any]:
    """Return the steps from a key to its worker, and its unsettled records.

    ``now`` has the records at workers, and those that keep the key's lane closed. ``hot`` has the
    number of waiting records, if the key is hot. Raises :class:`ConfigError` for a key that the
    slot function of the instance cannot take.
    """
    there = [worker.name for worker in sub.workers if worker.state != "gone"]
    if sub.routing == "unordered" or not there:
        routing = VnodeRing(there or ["none"], chosen.vnodes)
        found = where(key, routing, sub.slot_function)
        for each in ("vnode", "vnode_point"):
            del found[each]
        found |= {"worker": None, "why": "no slot has an owner: any worker may run any record"}
    elif sub.routing == "ring":
        ring = VnodeRing(there, chosen.vnodes, chosen.weighed())
        found = where(key, ring, sub.slot_function)
        shares = ring.share()
        other = any(abs(shares[each.name] - each.share) > NEAR for each in _there(sub))
        found["why"] = _SHARED if sub.shared is not None else "by the ring"
        if other:
            found["why"] += "; the instance has other shares: give its weights with --weight"
    else:
        found = where(key, read_back(sub.ranges, there), sub.slot_function)
    if any(sub.filters.values()):
        found["why"] = "workers have filters: the slot chooses among those that accept the key"
    slot, text = found["slot"], key_text(key)
    hot = () if sub.shared is None else sub.shared.hot_keys
    return found | {
        "shared": sub.shared is not None,
        "now": [*_at_workers(sub, slot), *_in_lanes(sub, slot, text)],
        "hot": next((_hot(each) for each in hot if each.slot == slot), None),
    }


def _there(sub: SubscriptionStatus) -> Iterator[WorkerStatus]:
    yield from (worker for worker in sub.workers if worker.state != "gone")


def _hot(hot: HotKey) -> dict[str, Any]:
    return {
        "partitions": [f"{topic}-{number}" for topic, number in hot.partitions],
        "waiting": hot.waiting,
        "share": hot.share,
        "rate": hot.rate,
        "capacity": hot.capacity,
        "text": rates(hot),
    }


def _at_workers(sub: SubscriptionStatus, slot: int) -> Iterator[dict[str, Any]]:
    """Yield the records of a slot that workers have, the running ones first."""
    workers = {worker.name: worker for worker in sub.workers}
    detached = () if sub.shared is None else sub.shared.detached
    apart = {(each.topic, each.partition, each.offset): each for each in detached}
    those = [each for each in sub.pending or () if each.slot == slot]
    for each in sorted(those, key=lambda each: not each.running):
        at = each.topic, each.partition, each.offset
        record = f"{each.topic}-{each.partition}@{each.offset}"
        told: dict[str, Any] = {"record": record, "worker": each.worker}
        told |= {"seconds": None, "waiting": None}
        run = workers[each.worker].running
        if at in apart:
            told |= {"seconds": apart[at].seconds, "waiting": apart[at].waiting}
            yield told | {"state": "detached"}
        elif run is not None and at == (run.topic, run.partition, run.offset):
            stuck = workers[each.worker].stuck > 0
            yield told | {"state": "stuck" if stuck else "running", "seconds": run.seconds}
        else:
            yield told | {"state": "running" if each.running else "leased"}


def _in_lanes(sub: SubscriptionStatus, slot: int, key: str | None) -> Iterator[dict[str, Any]]:
    """Yield the records that keep lanes of the slot closed, unless a worker has them."""
    for each in sub.closed:
        if each.slot != slot or each.state in _ELSEWHERE:
            continue
        if each.key is not None and each.key != key:
            continue  # another key of the slot
        offset = "" if each.offset < 0 else f"@{each.offset}"
        yield {
            "record": f"{each.topic}-{each.partition}{offset}",
            "worker": None,
            "seconds": each.seconds,
            "waiting": each.waiting,
            "state": each.state,
        }


def _rows(found: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    hot = found["hot"]
    if hot is not None:
        waiting = f"{counted(hot['waiting'], 'record')} {does(hot['waiting'], 'wait')}"
        yield "hot", waiting, f"it {hot['text']}"
    now = found["now"]
    if not now:
        yield "now", "none", "no worker has a record of this slot"
    for each in now[:SHOWN]:
        yield "now", each["record"], _in_words(each)
    if len(now) > SHOWN:
        yield "", f"{len(now) - SHOWN:,} more", ""


def _in_words(each: dict[str, Any]) -> str:
    state = "in the mailbox of" if each["state"] == "leased" else f"{each['state']} on"
    text = each["state"] if each["worker"] is None else f"{state} {each['worker']}"
    if each["seconds"] is not None:
        text += f" for {in_words(each['seconds'])}"
    if each["waiting"]:
        text += f"; {counted(each['waiting'], 'record')} {does(each['waiting'], 'wait')} behind it"
    return text
