"""The endless supply of training prompts from one or several data sets."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from rlctl.data.load import Dataset
from rlctl.seeds import derive_seed
from rlctl.types import Prompt


class Mixture:
    """Draws sets by weight and goes through each set in an order reshuffled every epoch.

    Draw n is a function of the seed and of how many draws came before, in all and from its set:
    so these counts are the whole state.
    """

    def __init__(self, datasets: Sequence[Dataset], seed: int) -> None:
        self._datasets = {dataset.name: dataset for dataset in datasets}
        assert len(self._datasets) == len(datasets), "data sets need different names"
        self._prompts = {prompt.uid: prompt for dataset in datasets for prompt in dataset.prompts}
        self._seed = seed
        self._drawn = dict.fromkeys(self._datasets, 0)
        self._orders: dict[str, tuple[int, list[int]]] = {}  # the epoch's, remembered

    @property
    def fingerprint(self) -> str:
        """SHA-256 of all that is drawn from: names, weights and the sets' own fingerprints."""
        parts = [[dataset.name, dataset.weight, dataset.fingerprint] for dataset in self._datasets.values()]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def take(self, n: int) -> list[Prompt]:
        """Return the next `n` prompts; one may come twice where an epoch ends among them."""
        return [self._next() for _ in range(n)]

    def get(self, uid: str) -> Prompt:
        """Return the prompt of a uid."""
        return self._prompts[uid]

    def state(self) -> dict[str, Any]:
        """Return how many prompts were drawn from each set."""
        return {"drawn": dict(self._drawn)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue exactly where `state` was taken."""
        self._drawn = {name: int(state["drawn"][name]) for name in self._datasets}

    def _next(self) -> Prompt:
        name = self._choose()
        prompts = self._datasets[name].prompts
        epoch, position = divmod(self._drawn[name], len(prompts))
        self._drawn[name] += 1
        return prompts[self._order(name, epoch)[position]]

    def _choose(self) -> str:
        names = list(self._datasets)
        if len(names) == 1:
            return names[0]
        rng = Random(derive_seed(self._seed, "mixture", sum(self._drawn.values())))
        return rng.choices(names, [dataset.weight for dataset in self._datasets.values()])[0]

    def _order(self, name: str, epoch: int) -> list[int]:
        if self._orders.get(name, (-1,))[0] != epoch:
            order = list(range(len(self._datasets[name].prompts)))
            Random(derive_seed(self._seed, "epoch", name, epoch)).shuffle(order)
            self._orders[name] = epoch, order
        return self._orders[name][1]
