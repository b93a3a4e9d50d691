"""The owner's mailbox: nothing in it is ever waited for."""

from __future__ import annotations

import threading
from queue import Empty

import pytest

from kafka_keyshared.executors.mailbox import Mailbox


def test_what_was_put_comes_out_in_order_also_without_waiting() -> None:
    mailbox: Mailbox[int] = Mailbox()
    for number in range(3):
        mailbox.put(number)
    assert [mailbox.get(timeout=60), mailbox.get_nowait(), mailbox.get(block=False)] == [0, 1, 2]
    with pytest.raises(Empty):
        mailbox.get(timeout=0.001)


def test_who_waits_is_woken_by_what_comes() -> None:
    mailbox: Mailbox[int] = Mailbox()
    got: list[int] = []
    thread = threading.Thread(target=lambda: got.append(mailbox.get()), daemon=True)
    thread.start()
    mailbox.put(7)
    thread.join(60)
    assert got == [7]


class RacedMailbox(Mailbox[str]):
    """An item comes between the look that finds it empty and the silencing of the bell."""

    raced = False

    def empty(self) -> bool:
        found = super().empty()
        if found and not self.raced:
            self.raced = True
            self.put("just now")
        return found


def test_what_comes_while_the_bell_is_silenced_is_not_waited_for() -> None:
    mailbox = RacedMailbox()
    got: list[str] = []
    thread = threading.Thread(target=lambda: got.append(mailbox.get()), daemon=True)
    thread.start()
    thread.join(30)
    assert got == ["just now"]
