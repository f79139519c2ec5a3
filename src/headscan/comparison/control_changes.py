"""Control changes of a model: random ones, or control fine-tunes, of the size of the change that is
examined.

Any change of weights moves every token systematically, so that "nothing changed" is no null. What a
fine-tune did is compared with what other changes of the same size do, matrix by matrix.
"""

import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy

import torch
from torch import Tensor

from headscan.comparison.alignment import Integers
from headscan.model import Lens
from headscan.model.partwise import PartwiseModel
from headscan.run import Progress, no_progress

STEPS = 40
"""Steps of AdamW of a control fine-tune."""

RATE = 2e-4
"""Its learning rate; the size of its change is set to that of the change examined."""

ROWS_A_STEP = 8
"""Windows of a step."""


class Control(ABC):
    """One control change. A subclass gives the direction of the change of a weight."""

    @abstractmethod
    def direction(self, part: str, name: str, weight: Tensor) -> Tensor:
        """Return a change of a weight of the base, of any size and of the weight's shape."""

    @contextmanager
    def ready(self, _part: str) -> Iterator[None]:
        """Have what the directions of a part need in memory in this context."""
        yield

    @contextmanager
    def applied(self, base: PartwiseModel, part: str, sizes: Mapping[str, float]) -> Iterator[None]:
        """Give a part of the base the control change in this context.

        `sizes`: the Frobenius norm of the change of each weight; see `sizes_of_change`.
        """
        weights = base.weights(part)
        originals = {name: weights[name].data for name, size in sizes.items() if size}
        try:
            with self.ready(part):
                for name, original in originals.items():
                    direction = self.direction(part, name, weights[name])
                    direction = direction.to(original.device).float()
                    scale = sizes[name] / max(float(direction.norm()), 1e-30)
                    changed = original.float() + scale * direction
                    weights[name].data = changed.to(original.dtype)
            yield
        finally:
            for name, original in originals.items():
                weights[name].data = original


def sizes_of_change(base: PartwiseModel, tuned: PartwiseModel, part: str) -> dict[str, float]:
    """Return the Frobenius norm of the change of each weight of a part, which must be in memory.

    It is over the rows that both models have, and 0 where the shapes do not fit.
    """
    tuned_weights = tuned.weights(part)
    sizes = {}
    for name, weight in base.weights(part).items():
        change = _change(weight, tuned_weights.get(name))
        sizes[name] = 0.0 if change is None else float(change.norm())
    return sizes


@torch.no_grad()
def _change(weight: Tensor, other: Tensor | None) -> Tensor | None:
    """Return the change of the rows that both have, in float32; None where shapes do not fit."""
    if other is None or other.shape[1:] != weight.shape[1:] or not weight.is_floating_point():
        return None
    if weight.ndim == 0:
        return other.to(weight.device).float() - weight.float()
    rows = min(len(other), len(weight))
    return other[:rows].to(weight.device).float() - weight[:rows].float()


class RandomChange(Control):
    """Gaussian noise, the same at each call for a seed, part and weight."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def direction(self, part: str, name: str, weight: Tensor) -> Tensor:
        # A tied table belongs to two parts and must change alike in both, so the part is left out
        # of the seed where the weight is not in a block.
        owner = part if part.startswith("block.") else ""
        key = zlib.crc32(f"{self.seed} {owner} {name}".encode())
        generator = torch.Generator().manual_seed(key)
        return torch.randn(weight.shape, generator=generator)


class ModelChange(Control):
    """The change from the base to another fine-tune of it."""

    def __init__(self, model: PartwiseModel) -> None:
        self.model = model

    @contextmanager
    def ready(self, part: str) -> Iterator[None]:
        with self.model.ready(part):
            yield

    def direction(self, part: str, name: str, weight: Tensor) -> Tensor:
        change = _change(weight, self.model.weights(part).get(name))
        if change is None or change.shape == weight.shape:
            return torch.zeros(weight.shape) if change is None else change
        # Rows that the fine-tune lacks do not change.
        missing = len(weight) - len(change)
        return torch.cat([change, change.new_zeros(missing, *change.shape[1:])])


def control_fine_tunes(
    lens: Lens, rows: Integers, count: int, seed: int, progress: Progress = no_progress
) -> list[Lens]:
    """Return so many fine-tunes of a model on windows [n, T], each with another order of them.

    Memory: `count` models, and during training the gradients and two moments of one.
    """
    fine_tunes = []
    data = torch.from_numpy(rows)
    for number in range(count):
        model = deepcopy(lens.model).train()
        generator = torch.Generator().manual_seed(seed * 1000 + number)
        optimiser = torch.optim.AdamW(model.parameters(), lr=RATE)
        for step in range(STEPS):
            progress("control fine-tunes", number * STEPS + step, count * STEPS, "steps")
            drawn = torch.randint(len(data), (ROWS_A_STEP,), generator=generator)
            token_ids = data[drawn].to(lens.device)
            model(input_ids=token_ids, labels=token_ids).loss.backward()
            optimiser.step()
            optimiser.zero_grad()
        fine_tunes.append(Lens(model.eval(), lens.tokenizer, name=f"control {number + 1}"))
    progress("control fine-tunes", count * STEPS, count * STEPS, "steps")
    return fine_tunes
