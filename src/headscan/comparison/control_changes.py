"""Control changes of a model: random ones, or control fine-tunes, of the size of the change that is
examined.

Any change of weights moves every token systematically, so that "nothing changed" is no null. What a
fine-tune did is compared with what other changes of the same size do, matrix by matrix.
"""

import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
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
    def applied(self, base: PartwiseModel, tuned: PartwiseModel, part: str) -> Iterator[None]:
        """Give a part of the base the control change in this context.

        The part of the tuned model must be in memory. Each change has the Frobenius norm of the
        tuned model's change of the same weight; rows that only one of both models has do not count.
        """
        tuned_weights = tuned.weights(part)
        originals: dict[str, Tensor] = {}
        with self.ready(part):
            for name, weight in base.weights(part).items():
                size = _size_of_change(weight, tuned_weights.get(name))
                if size == 0:
                    continue
                direction = self.direction(part, name, weight).to(weight.device).float()
                norm = float(direction.norm())
                if norm > 0:
                    originals[name] = weight.data
                    weight.data = (weight.data.float() + direction * (size / norm)).to(weight.dtype)
        try:
            yield
        finally:
            weights = base.weights(part)
            for name, original in originals.items():
                weights[name].data = original


@torch.no_grad()
def _size_of_change(weight: Tensor, tuned: Tensor | None) -> float:
    """Return the Frobenius norm of the change of a weight, over the rows that both have."""
    if tuned is None or tuned.shape[1:] != weight.shape[1:] or not weight.is_floating_point():
        return 0.0
    rows = min(len(tuned), len(weight)) if weight.ndim else 1
    if weight.ndim == 0:
        return float((tuned - weight).abs())
    return float((_plain(tuned[:rows]) - _plain(weight[:rows])).norm())


def _plain(weight: Tensor) -> Tensor:
    """Return a weight in float32 on the CPU, without its gradient."""
    return weight.detach().cpu().float()


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
        other = self.model.weights(part).get(name)
        change = torch.zeros(weight.shape)
        if other is None or other.shape[1:] != weight.shape[1:]:
            return change
        if weight.ndim == 0:
            return _plain(other) - _plain(weight)
        rows = min(len(other), len(weight))
        change[:rows] = _plain(other[:rows]) - _plain(weight[:rows])
        return change


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


@contextmanager
def all_ready(models: Sequence[PartwiseModel], part: str) -> Iterator[None]:
    """Have a part of all models in memory in this context."""
    with ExitStack() as contexts:
        for model in models:
            contexts.enter_context(model.ready(part))
        yield
