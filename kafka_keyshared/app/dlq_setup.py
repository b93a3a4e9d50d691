"""The dead-letter topics of an app, and checks of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafka_keyshared.client.patterns import topics_meant
from kafka_keyshared.config import Options
from kafka_keyshared.core.contract.events import DeadLetterAnswer
from kafka_keyshared.dlq.publish import DeadLetterPublisher
from kafka_keyshared.dlq.topics import require_topics
from kafka_keyshared.errors import ConfigError


def refuse_own(options: Options, topics: Sequence[str], there: Sequence[str] = ()) -> None:
    """Refuse to consume the app's own dead-letter topics.

    ``there`` are existing topics that patterns may match.
    """
    for topic in topics_meant(topics, there):
        dlq = options.dlq_topic(topic)
        if dlq in topics_meant(topics, [dlq]):
            raise ConfigError(
                f"dlq: the dead letters of {topic!r} would go to {dlq!r}, which is consumed "
                "here too, and come back without end; name another topic"
            )


def seen_by(
    hook: Callable[[DeadLetterAnswer], None] | None, post: Callable[[DeadLetterAnswer], None]
) -> Callable[[DeadLetterAnswer], None]:
    """Return a function that calls the hook, if there is one, and then posts the answer."""

    def posted(answered: DeadLetterAnswer) -> None:
        if hook is not None:
            hook(answered)
        post(answered)

    return posted


def publisher(
    conf: Mapping[str, Any],
    options: Options,
    sources: Sequence[str],
    post: Callable[[DeadLetterAnswer], None],
    timeout: float,
) -> DeadLetterPublisher:
    """Return the writer of these topics' dead letters, which posts the answers.

    The brokers have ``timeout`` seconds to confirm or create the dead-letter topics. Raises
    :class:`ConfigError` where such a topic is missing.
    """
    wanted = sorted({options.dlq_topic(topic) for topic in sources})
    require_topics(conf, wanted, create=options.dlq_create, timeout=timeout)
    return DeadLetterPublisher(conf, options.dlq_topic, post, form=options.dlq_format)
