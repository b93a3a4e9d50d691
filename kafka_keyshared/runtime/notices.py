"""What the core has to say, as lines of the log."""

from __future__ import annotations

from kafka_keyshared.core.events import Notice
from kafka_keyshared.logs import log_of
from kafka_keyshared.runtime.pool import Pool

log = log_of("kafka_keyshared.loop")


def tell(notice: Notice, pool: Pool) -> None:
    """Log it, with where its worker stands in the user's program."""
    place = pool.where(*notice.running) if notice.running else ""
    log.log(notice.level, "%s%s", notice.text, f"; now {place}" if place else "")
