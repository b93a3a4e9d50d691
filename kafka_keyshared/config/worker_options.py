"""The option ``workers``: kind of pool and number of workers."""

from __future__ import annotations

import re

from kafka_keyshared.errors import ConfigError

ASYNCIO, PROCESS = "asyncio", "process"
POOLS = ("thread", ASYNCIO, PROCESS, "split")
PULL = "pull"
SERIAL = ("thread", PROCESS)
"""Pools whose workers call a handler with one record after the other."""

SHARED = (*SERIAL, ASYNCIO)
"""Pools whose workers share waiting records, if their handler keeps no state."""

ACK_TIMEOUTS: dict[str, float | None] = {**dict.fromkeys(POOLS), PROCESS: 60.0, PULL: 30.0}
"""Default ack timeout in seconds, by pool.

A split consumer loop keeps the time per record that it had with one consumer.
"""

WORKERS = rf"^(?:{PULL}|(?:({'|'.join(POOLS)}):)?0*([1-9][0-9]{{0,8}}))$"
WORKERS_ALLOWED = (
    "a number of threads such as 16 or 'thread:16', at least 1 worker; 'asyncio:1000' for 1000 "
    "concurrent coroutines, 'process:4' for processes; or 'pull' for members that ask for records"
)

THREADS = 16
COROUTINES = 1_000
"""Default worker count of a plain function, and concurrent records of a coroutine function."""

COROUTINES_SLICE = 500
"""Maximum number of records in one slice for coroutines."""

MOST = {"thread": 10_000, "split": 10_000, PROCESS: 1_000, ASYNCIO: 100_000}
"""Maximum number of workers or of concurrent records, by pool.

A larger number is a typing error. Without this limit it would show only when the machine runs out
of memory.
"""


def counted_workers(workers: int | str) -> tuple[str, int]:
    """Return the kind of the pool, and the number of its workers.

    Raises :class:`ConfigError` for a value that gives neither, ``pull`` included.
    """
    match = re.fullmatch(WORKERS, str(workers))
    if match is None or match[2] is None:
        # Written in full, as the page of errors quotes it.
        raise ConfigError(
            f"workers={workers!r}: give a number of threads such as 16 or 'thread:16', at least 1 "
            "worker; 'asyncio:1000' for 1000 concurrent coroutines, 'process:4' for processes; or "
            "'pull' for members that ask for records"
        )
    return match[1] or POOLS[0], int(match[2])


def refuse_more(pool: str, count: int, option: str) -> None:
    """Raise :class:`ConfigError` for more workers than :data:`MOST`.

    ``option`` names the option in the error.
    """
    if count > (most := MOST.get(pool, count)):
        raise ConfigError(f"{option}: the maximum is {most}; give '{pool}:{most}', or fewer")


def default_workers(*, awaited: bool, batched: bool = False) -> int | str:
    """Return the default workers of a handler. ``awaited``: it is a coroutine function.

    A handler of batches runs as many concurrent calls on a loop as on threads.
    """
    if not awaited:
        return THREADS
    return f"{ASYNCIO}:{THREADS if batched else COROUTINES}"


def pool_of(workers: int | str) -> str:
    """Return the kind of the pool."""
    return PULL if workers == PULL else counted_workers(workers)[0]


def coroutines_of(workers: int | str) -> int | None:
    """Return the number of concurrent records on an event loop; None: they run elsewhere."""
    return counted_workers(workers)[1] if pool_of(workers) == ASYNCIO else None


def leases_of(workers: int | str, least: int) -> int:
    """Return the number of leases per worker, so that a free coroutine has its next record."""
    return max(least, 2 * (coroutines_of(workers) or 0))


def slice_records(workers: int | str, time_limit: float | None) -> int:
    """Return the maximum records of a slice whose records may end in any order.

    It is 1 with an ack timeout and for members: both end records one by one.
    """
    return COROUTINES_SLICE if coroutines_of(workers) and time_limit is None else 1


def ring_workers(workers: int | str) -> int:
    """Return the number of workers that share the keys. Members count only once they join."""
    if workers == PULL:
        return 0
    pool, count = counted_workers(workers)
    return 1 if pool == ASYNCIO else count  # all coroutines are one, with a chain per key
