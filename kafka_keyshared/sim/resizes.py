"""Workers that come and go while a simulated run is not yet healed, by orders to their owners."""

from __future__ import annotations

from collections.abc import Generator

from kafka_keyshared.core import events as ev
from kafka_keyshared.sim.world import World

WORKERS_MOST = 9
"""Names that a subscription's workers are chosen from."""


class Resizes:
    """Brings subscriptions to other workers at random moments, old names and new ones."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = world.chance("resizes")
        # Many seeds do without, so that workers are also there for long.
        self._every = self._chance.choice((0.0, 0.0, 0.1, 1.0))

    def begin(self) -> None:
        """Resize them from now on."""
        if self._every:
            self._later()

    def _later(self) -> None:
        self._world.timeline.after(self._chance.expovariate(1 / self._every), self._resize)

    def _resize(self) -> None:
        world, chance = self._world, self._chance
        if world.healed:
            return
        self._later()
        members = [each for each in world.present() if not each.stopping]
        if not members:
            return
        loop = chance.choice(members).instance.loop
        name = chance.choice(list(loop.core.subscriptions))
        names = [f"worker-{number}" for number in range(WORKERS_MOST)]
        wanted = chance.sample(names, chance.randint(1, WORKERS_MOST))

        def order() -> Generator[None, None, None]:
            loop.tell(ev.Resize(name, wanted))
            yield from ()

        loop.orders.post("resize", order)
        world.reached["workers came and went"] += 1
