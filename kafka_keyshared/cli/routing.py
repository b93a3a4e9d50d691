"""``keyshared routing``: owner of a key, balance, effect of a resize.

Nothing here connects to Kafka, because the workers' names alone determine the owner of a key.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import mmh3

from kafka_keyshared.cli.output import OutputFormat, write_result, write_table
from kafka_keyshared.cli.settings import typed_key
from kafka_keyshared.core.routing.modes import MODES, RoutingSettings
from kafka_keyshared.core.routing.port import Routing, SlotSpan, Unowned
from kafka_keyshared.core.routing.ring import VnodeRing
from kafka_keyshared.core.routing.slot_ranges import parse_ranges
from kafka_keyshared.core.subscription.settings import worker_names
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.hashing import (
    SLOT_FUNCTIONS,
    SLOT_KEY_BYTES,
    SLOT_SEED,
    SLOTS,
    blake3_u32,
    fnv1a_32,
)

# The full hash from which each slot function takes its 16 bits, for a check by hand.
_HASHES: Mapping[str, Callable[[bytes], int]] = {
    "mmh3": lambda key: mmh3.hash(key, SLOT_SEED, signed=False),
    "fnv1a": fnv1a_32,
    "pulsar": lambda key: mmh3.hash(key, 0, signed=False) & 0x7FFFFFFF,
    "blake3_u16": blake3_u32,
}


class RoutingArguments(NamedTuple):
    """The routing from the command line."""

    workers: int
    vnodes: int
    routing: str
    ranges: Sequence[str]
    weights: Sequence[str]

    def make(self) -> Routing:
        """Return the routing; raise :class:`ConfigError` for an invalid one."""
        names = worker_names(self.workers)
        if self.routing == "ring":
            if self.ranges:
                raise ConfigError("--range is for --routing sticky, not for ring")
            return VnodeRing(names, self.vnodes, self.weighed())
        if self.routing not in MODES or self.routing == "unordered":
            raise ConfigError(
                f"--routing {self.routing}: give ring, sticky, auto-split or exclusive; "
                "other routings assign no slots"
            )
        ranges = {name: parse_ranges(text) for name, text in _pairs("--range", self.ranges).items()}
        if self.weights:
            raise ConfigError(f"--weight is for --routing ring, not for {self.routing}")
        settings = RoutingSettings(self.routing, ranges, on_unmatched="hold")
        settings.check(names)
        return settings.of(names)

    def weighed(self) -> dict[str, float]:
        """Return the weights of workers; raise :class:`ConfigError` for a non-numeric value."""
        pairs = _pairs("--weight", self.weights)
        return {name: _number(name, text) for name, text in pairs.items()}


def _pairs(flag: str, given: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name or name in found:
            raise ConfigError(f"{flag} {text}: give WORKER=VALUE, each worker once")
        found[name] = value
    return found


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"--weight {name}={text}: give a number above 0") from None


def where_verb(
    key: str | None,
    *,
    null: bool,
    chosen: RoutingArguments,
    slot_function: str,
    output: OutputFormat,
) -> int:
    """Print the steps from a key to its worker: hash, slot, vnode, worker."""
    routing = chosen.make()
    if null:
        if key is not None:
            raise ConfigError("routing where: give a key or --null, not both")
        result: dict[str, Any] = {
            "key": None,
            "slot": None,
            "worker": None,
            "why": "a null key has no slot: each record goes to the worker with the fewest leases",
        }
    elif key is None:
        raise ConfigError(
            "routing where: give a key, as text or as hex:…, or --null for records without a key"
        )
    else:
        result = where(typed_key(key), routing, slot_function)
    title = f"worker of a key among {chosen.workers} workers"
    if output is OutputFormat.TABLE and key is not None:
        write_table(title, {"": "left", " ": "left", "  ": "left"}, steps(result))
    else:
        write_result(result, output, title)
    return 0


def steps(found: Mapping[str, Any], owner: str = "worker") -> list[tuple[str, str, str]]:
    """Return the rows of a table of a key's steps, the last one for its ``owner``."""
    rows = [
        ("key", found["key"], f"bytes {found['bytes'] or 'none'}"),
        ("hash", f"0x{found['hash']:08x}", found["slot_function"]),
        ("slot", str(found["slot"]), f"of 0 to {SLOTS - 1}"),
    ]
    if "vnode" in found:
        at = f"at point 0x{found['vnode_point']:08x} of the ring"
        rows.append(("vnode", found["vnode"], at))
    elif "range" in found:
        rows.append(("range", found["range"], ""))
    return [*rows, (owner, found["worker"] or "none", found.get("why", ""))]


def where(key: bytes, routing: Routing, slot_function: str) -> dict[str, Any]:
    """Return each step from a key to its worker.

    Raises :class:`ConfigError` for a slot function that does not exist or cannot take the key.
    """
    if slot_function not in SLOT_FUNCTIONS:
        raise ConfigError(
            f"--slot-function {slot_function}: give one of {', '.join(SLOT_FUNCTIONS)}"
        )
    length = SLOT_KEY_BYTES.get(slot_function, len(key))
    if len(key) != length:
        raise ConfigError(
            f"--slot-function {slot_function}: the key has {len(key)} bytes, and has to have "
            f"{length}; give it as hex:{'00' * length}. A record with this key is undecodable"
        )
    slot = SLOT_FUNCTIONS[slot_function](key)
    found: dict[str, Any] = {
        "key": key.decode("utf-8", "backslashreplace"),
        "bytes": key.hex(),
        "slot_function": slot_function,
        "hash": _HASHES[slot_function](key),
        "slot": slot,
    }
    if isinstance(routing, VnodeRing):
        vnode = routing.vnode(slot)
        return found | {
            "vnode": f"{vnode.worker}-{vnode.number}",
            "vnode_point": vnode.point,
            "worker": vnode.worker,
        }
    span = next(each for each in routing.spans() if each.first <= slot <= each.last)
    found["range"] = f"{span.first}-{span.last}"
    if isinstance(span.owner, Unowned):
        return found | {"worker": None, "why": _WHY[span.owner]}
    return found | {"worker": span.owner}


_WHY = {
    Unowned.UNASSIGNED: "the slot is in no range: on_unmatched applies",
    Unowned.AWAY: "the slot is assigned to an absent worker: its records are held",
}


def show_verb(chosen: RoutingArguments, output: OutputFormat) -> int:
    """Print each worker's share of the slots, and its ranges if the routing has ranges."""
    routing = chosen.make()
    rows = shares(routing)
    if output is not OutputFormat.TABLE:
        write_result({"slots": SLOTS, "workers": rows}, output, "routing")
        return 0
    even = SLOTS / chosen.workers
    last = "vnodes" if isinstance(routing, VnodeRing) else "ranges"
    write_table(
        f"{chosen.workers} workers own {SLOTS:,} slots",
        {"worker": "left", "share": "right", "of even": "right", "slots": "right", last: "right"},
        [
            (row["name"], f"{row['share']:.2%}", f"{row['slots'] / even:.3f}",
             f"{row['slots']:,}", str(row[last]))
            for row in rows
        ],
    )  # fmt: skip
    return 0


def shares(routing: Routing) -> list[dict[str, Any]]:
    """Return for each worker its name, its share of the slots, and its vnodes or ranges.

    A ring has vnodes; the other routings have ranges. Slots without a worker come last.
    """
    if isinstance(routing, VnodeRing):
        return [
            {
                "name": name,
                "share": share,
                "vnodes": routing.count(name),
                "slots": round(share * SLOTS),
            }
            for name, share in routing.share().items()
        ]
    spans: dict[str, list[SlotSpan]] = {name: [] for name in routing.workers}
    for span in routing.spans():
        name = span.owner.name.lower() if isinstance(span.owner, Unowned) else span.owner
        spans.setdefault(name, []).append(span)
    return [
        {
            "name": name,
            "share": (slots := sum(each.last - each.first + 1 for each in own)) / SLOTS,
            "ranges": ",".join(f"{each.first}-{each.last}" for each in own),
            "slots": slots,
        }
        for name, own in spans.items()
    ]


def simulate_verb(  # noqa: PLR0917 - each is an option of the command line
    workers: int, vnodes: int, add: int, remove: int, keys: int, seed: int, output: OutputFormat
) -> int:
    """Print the effect of a resize."""
    if (add > 0) == (remove > 0):
        raise ConfigError("routing simulate: give --add N or --remove N, one of them")
    if remove >= workers:
        raise ConfigError(
            f"routing simulate: --remove {remove} leaves none of {workers} workers; remove fewer"
        )
    before, after = make_ring(workers, vnodes), make_ring(workers + add - remove, vnodes)
    result = simulate(before, after, keys, seed)
    if output is not OutputFormat.TABLE:
        write_result(result, output, "routing simulate")
        return 0
    write_table(
        f"{workers} workers become {len(after.workers)}: {result['moved_keys']:,} of {keys:,} keys "
        f"move ({result['moved_ratio']:.1%}; an even load needs {result['minimum_ratio']:.1%})",
        {"worker": "left", "keys before": "right", "keys after": "right", "change": "right"},
        [
            (row["name"], f"{row['before']:,}", f"{row['after']:,}",
             f"{row['after'] - row['before']:+,}")
            for row in result["workers"]
        ],
    )  # fmt: skip
    return 0


def simulate(before: VnodeRing, after: VnodeRing, keys: int, seed: int) -> dict[str, Any]:
    """Return the moves of ``keys`` random keys when ``before`` is replaced by ``after``.

    ``minimum_ratio`` is the share that any routing must move to keep the load even. With n workers
    becoming m, it is |n - m| / max(n, m). The same seed gives the same keys.
    """
    chance = random.Random(seed)
    slot_of = SLOT_FUNCTIONS["mmh3"]
    slots = [slot_of(f"key-{chance.getrandbits(64):016x}".encode()) for _ in range(keys)]
    old, new = before.table(), after.table()
    had = Counter(before.workers[old[slot]] for slot in slots)
    has = Counter(after.workers[new[slot]] for slot in slots)
    moved = sum(before.workers[old[slot]] != after.workers[new[slot]] for slot in slots)
    counts = (len(before.workers), len(after.workers))
    return {
        "keys": keys,
        "moved_keys": moved,
        "moved_ratio": moved / keys,
        "minimum_ratio": (max(counts) - min(counts)) / max(counts),
        "workers": [
            {"name": name, "before": had[name], "after": has[name]}
            for name in dict.fromkeys((*before.workers, *after.workers))
        ],
    }


def make_ring(workers: int, vnodes: int) -> VnodeRing:
    """Return the ring that an instance with this many workers routes by."""
    return VnodeRing(worker_names(workers), vnodes)
