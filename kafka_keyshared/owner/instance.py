"""One member of a group, whole: the core, the loop with its ports, rebalances and the stop.

Whoever runs the package runs this: the service over a Kafka client and threads, tests over ports of
their own, a simulator. There is one round, :meth:`Instance.step`, and all that belongs to a round
is in it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable
from typing import Protocol, TypeVar

from kafka_keyshared.core import commands as cmd
from kafka_keyshared.core import events as ev
from kafka_keyshared.core.dispatcher import Dispatcher
from kafka_keyshared.owner.loop import CHUNK, Loop
from kafka_keyshared.owner.ports import Ports
from kafka_keyshared.owner.rebalance import Rebalancer
from kafka_keyshared.owner.stopping import StopReport, stop
from kafka_keyshared.program import forks

T = TypeVar("T")


class Watcher(Protocol):
    """Who looks on, on the owner's thread."""

    def step(self) -> None:
        """Look, after every round."""


class Instance:
    """A member of a group. One thread, its owner, calls it.

    ``revoke_deadline`` is in seconds. A fetch brings ``chunk`` records at most. ``watcher`` looks
    on after every round.
    """

    def __init__(
        self, core: Dispatcher, ports: Ports, *, revoke_deadline: float, chunk: int = CHUNK
    ) -> None:
        self.core = core
        self.ports = ports
        self.loop = Loop(core, ports, chunk)
        self.rebalancer = Rebalancer(self.loop, revoke_deadline)
        self.watcher: Watcher | None = None
        self.pid = os.getpid()

    @property
    def halted(self) -> str | None:
        """Why it can do nothing more, None while it can."""
        return self.loop.halted

    def start(self) -> None:
        """Start the workers. Raises :class:`ConfigError` when a handler cannot be made."""
        self.ports.pool.start(self.core.lanes)

    def join(self) -> None:
        """Join the group: from now on partitions come and go."""
        self.rebalancer.subscribe()

    def tell(self, event: ev.Event) -> None:
        """Give an event to the core and do what it answers."""
        self.loop.tell(event)

    def act(self, commands: Iterable[cmd.Command]) -> None:
        """Do what the core has commanded."""
        self.loop.act(commands)

    def ask(
        self,
        name: str,
        order: Callable[[Loop], Generator[None, None, T]],
        timeout: float,
        *,
        follows: bool = False,
    ) -> T:
        """Order something of the owner, from any other thread, and wait for its answer.

        ``name`` is what a refusal calls it, ``timeout`` is in seconds; see :meth:`.Orders.ask`.
        Raises :class:`~.orders.OrderRefusedError`, with the reason, and :class:`TimeoutError`.
        """
        return self.loop.orders.ask(name, lambda: order(self.loop), timeout, follows=follows)

    def step(self) -> None:
        """Do one round. Raises what a rebalance callback has failed with."""
        self.loop.step()
        self.rebalancer.step()
        if self.watcher is not None:
            self.watcher.step()
        if self.rebalancer.failure is not None:
            raise self.rebalancer.failure

    def run(self, over: Callable[[], object], stepped: Callable[[], None] | None = None) -> None:
        """Do round after round until it is ``over``, has to halt, or is the child of a fork.

        ``stepped`` is called after each.
        """
        self.loop.orders.belong()
        with forks.ends_here(forks.IN_OWNER) as in_child:
            while not (in_child() or self.halted or over()):
                self.step()
                if stepped is not None:
                    stepped()

    def stop(self, timeout: float, hurried: Callable[[], bool]) -> StopReport:
        """Drain and commit within ``timeout`` seconds; ``hurried`` gives up the rest of it.

        Orders that wait are refused, and all from now on.
        """
        halted = self.halted
        reason = "the instance is stopping" if halted is None else f"it had to halt: {halted}"
        self.loop.orders.close(reason)
        return stop(self.loop, timeout, hurried)

    def close(self) -> None:
        """Take no partition any more, and give none back with a commit: it has ended.

        Nobody waits for an answer after this.
        """
        self.rebalancer.closing = True
        self.refuse_orders()

    def refuse_orders(self) -> None:
        """Answer all that wait, and all from now on, that it has ended; from any thread."""
        self.loop.orders.close("the instance has ended")
