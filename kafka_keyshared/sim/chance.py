"""All that could go one way or the other, drawn from one seed.

Each purpose has a generator of its own: one more draw for one of them changes nothing for the
others, so that what a seed means outlives most changes of the simulation.
"""

from __future__ import annotations

from random import Random


class Chance:
    """The generators of one seed, by purpose."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._made: dict[str, Random] = {}

    def __call__(self, purpose: str) -> Random:
        """Return the purpose's generator, always the same one."""
        found = self._made.get(purpose)
        if found is None:
            # Seeded by text: that is hashed the same way in every process.
            found = self._made[purpose] = Random(f"{self.seed} {purpose}")
        return found
