"""How the workers of a program are said: in what kind of pool, and how many."""

from __future__ import annotations

import re

from kafka_keyshared.errors import ConfigError

ASYNCIO, PROCESS = "asyncio", "process"
POOLS = ("thread", ASYNCIO, PROCESS, "split")
PULL = "pull"
SERIAL = ("thread", PROCESS)
"""Of these a worker calls a handler with one record after the other."""

SHARED = (*SERIAL, ASYNCIO)
"""These share what waits, where their handler keeps no state."""

ACK_TIMEOUTS: dict[str, float | None] = {**dict.fromkeys(POOLS), PROCESS: 60.0, PULL: 30.0}
"""By pool for how many seconds a record may run unless it is said: a loop that is split has as long
as it had with one consumer."""

WORKERS = rf"^(?:{PULL}|(?:({'|'.join(POOLS)}):)?0*([1-9][0-9]{{0,8}}))$"
WORKERS_ALLOWED = (
    "a number of threads such as 16 or 'thread:16', at least 1 worker; 'asyncio:1000' for so many "
    "coroutines at once, 'process:4' for processes; or 'pull' for members that ask for records"
)

THREADS = 16
COROUTINES = 1_000
"""How many workers a plain function has where nobody has said it, and how many records of a
coroutine function run at once."""

TRACED = (
    "Whether each call of a handler is a span of OpenTelemetry, linked to the one that produced "
    "the record. It needs the extra `tracing`."
)
"""What is said of ``tracing``."""
COROUTINES_SLICE = 500
"""Records that coroutines are handed at once, at most."""

MOST = {"thread": 10_000, "split": 10_000, PROCESS: 1_000, ASYNCIO: 100_000}
"""By pool how many workers there may be, or records running at once: more are a slip of the hand,
and would be found out by a machine without memory."""

DETACHES = (
    "How long a record of a function runs until all that its worker has besides goes to other "
    "workers. Not set: 0.05 s. 0: it waits. Not for handler classes, ranges or filters."
)
"""What is said of ``detach_after``."""


def counted_workers(workers: int | str) -> tuple[str, int]:
    """Return the kind of the pool, and how many workers it has.

    Raises :class:`ConfigError` for what says neither, ``pull`` included.
    """
    match = re.fullmatch(WORKERS, str(workers))
    if match is None or match[2] is None:
        # In full, as the page of errors quotes it.
        raise ConfigError(
            f"workers={workers!r}: give a number of threads such as 16 or 'thread:16', at least 1 "
            "worker; 'asyncio:1000' for so many coroutines at once, 'process:4' for processes; or "
            "'pull' for members that ask for records"
        )
    return match[1] or POOLS[0], int(match[2])


def refuse_more(pool: str, count: int, said: str) -> None:
    """Raise :class:`ConfigError` for more workers than :data:`MOST`; ``said``: what asks for it."""
    if count > (most := MOST.get(pool, count)):
        raise ConfigError(f"{said}: there are at most {most}; give '{pool}:{most}', or fewer")


def suited(*, awaited: bool, batched: bool = False) -> int | str:
    """Return the workers of a handler where they are not said; ``awaited``: it is a coroutine.

    One that takes several records at a time runs in as many calls on a loop as on threads.
    """
    if not awaited:
        return THREADS
    return f"{ASYNCIO}:{THREADS if batched else COROUTINES}"


def pool_of(workers: int | str) -> str:
    """Return in what kind of pool they are."""
    return PULL if workers == PULL else counted_workers(workers)[0]


def coroutines_of(workers: int | str) -> int | None:
    """Return how many records may run at once on an event loop; None: they run elsewhere."""
    return counted_workers(workers)[1] if pool_of(workers) == ASYNCIO else None


def leases_of(workers: int | str, least: int) -> int:
    """Return how many records a worker is leased: who ends is to find the next one there."""
    return max(least, 2 * (coroutines_of(workers) or 0))


def slice_records(workers: int | str, time_limit: float | None) -> int:
    """Return how many records one slice may have where they end in any order.

    What is past the ack timeout is ended record by record, and so is what a member acknowledges.
    """
    return COROUTINES_SLICE if coroutines_of(workers) and time_limit is None else 1


def ring_workers(workers: int | str) -> int:
    """Return among how many workers keys are divided. Members are not counted before they join."""
    if workers == PULL:
        return 0
    pool, count = counted_workers(workers)
    return 1 if pool == ASYNCIO else count  # all coroutines are one, with a chain for each key
