"""Fault rates of the simulated cluster, and its fixed group settings."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(slots=True)
class FaultRates:
    """Shares from 0 to 1. By default nothing goes wrong. The world is healed when all are 0.

    Commits: ``commit_refused`` are refused and not stored, ``commit_partly`` are refused for one
    partition only. ``commit_unheard`` are stored and reported as timed out, ``commit_dropped``
    never arrive. ``commit_late`` are stored after commits that were sent later, and answered then.
    ``commit_given_up`` are reported as failed first and stored later.

    Queries: ``committed_unanswered``, ``committed_partly`` (some partitions are left out),
    ``bounds_unanswered`` (one leader is silent). A share ``slow`` of all messages between client
    and broker takes up to ``slowest`` seconds.

    Calls: ``fetch_raises`` (the records that a call took are lost), ``pause_refused``,
    ``seek_refused``, ``restart_late`` (not done within its second). Fetches: ``out_of_range``
    without a reason, and ``fetch_errors``, which are reported as messages.
    """

    commit_refused: float = 0.0
    commit_partly: float = 0.0
    commit_unheard: float = 0.0
    commit_dropped: float = 0.0
    commit_late: float = 0.0
    commit_given_up: float = 0.0
    committed_unanswered: float = 0.0
    committed_partly: float = 0.0
    bounds_unanswered: float = 0.0
    slow: float = 0.0
    slowest: float = 2.0
    fetch_raises: float = 0.0
    pause_refused: float = 0.0
    seek_refused: float = 0.0
    restart_late: float = 0.0
    out_of_range: float = 0.0
    fetch_errors: float = 0.0

    def heal(self) -> None:
        """End all faults."""
        for field in fields(self):
            setattr(self, field.name, field.default)


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Settings on which members and coordinator agree. Times are in seconds.

    ``protocol`` is ``eager``, ``cooperative`` (KIP-429) or ``kip-848``. ``request_timeout`` is how
    long a commit waits for its answer behind a JoinGroup (``socket.timeout.ms``, but as short as a
    user may set it). ``refresh`` is how long members take to notice an added partition.
    ``metadata_max`` counts UTF-16 units, including the NUL that the binding adds. ``tells_limit``
    says that members may query it, ``tells_ids`` that brokers have topic ids.
    """

    protocol: str = "eager"
    session_timeout: float = 10.0
    heartbeat: float = 1.0
    max_poll_interval: float = 60.0
    request_timeout: float = 6.0
    refresh: float = 5.0
    metadata_max: int = 4_096
    tells_limit: bool = True
    tells_ids: bool = True
