"""What is told while a reader waits for records that do not come."""

from __future__ import annotations

from kafka_keyshared.client.silence_log import SAY_AFTER, SAY_EVERY, Silence

REFUSED = "127.0.0.1:9092/1: Connect to ipv4#127.0.0.1:9092 failed: Connection refused"


class Reader:
    """Waits ten times a second, as the readers do."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.said: list[str] = []
        self.reasons: list[str] = []
        self.silence = Silence("kafka:9092", self.reasons, self.said.append, lambda: self.now)

    def wait(self, seconds: float) -> None:
        for _ in range(round(seconds * 10)):
            self.now += 0.1
            self.silence.waited()


def test_an_outage_is_a_line_then_one_a_minute_and_one_when_it_is_over() -> None:
    reader = Reader()
    reader.reasons += [REFUSED, "1/1 brokers are down"]
    reader.wait(SAY_AFTER + 2 * SAY_EVERY + 1)
    assert reader.silence.told
    reader.silence.came()
    assert reader.said == [
        f"nothing has come from kafka:9092 for {seconds} s ({REFUSED}); the request is repeated"
        for seconds in (5, 65, 125)
    ] + ["records come again, after 126 s"]
    assert not reader.silence.told


def test_a_broker_that_stands_still_gives_no_reason_and_is_told_all_the_same() -> None:
    reader = Reader()
    reader.wait(SAY_AFTER + 1)
    assert reader.said == [
        "nothing has come from kafka:9092 for 5 s (reason unknown); the request is repeated"
    ]


def test_a_pause_that_is_no_outage_is_not_told() -> None:
    reader = Reader()
    for _ in range(50):
        reader.wait(SAY_AFTER - 1)
        reader.silence.came()
    assert reader.said == []
