"""By what the weights move: an optimiser is one class in one file of `headscan.training.optimisers`, or of a plug-in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn

from headscan.run import Registry, Settings
from headscan.training.learner import Learner

Groups = list[dict[str, Any]]  # as torch.optim takes them


@dataclass(frozen=True, kw_only=True)
class Optimiser(Settings, ABC):
    """How gradients become steps; its `Option` fields are its parameters, on the command line too.

    >>> optimiser_of("adamw")
    AdamW()
    """

    @property
    def name(self) -> str:
        return next((name for name, item in OPTIMISERS.items() if item is type(self)), type(self).__name__)

    @abstractmethod
    def make(
        self, learner: Learner, *, rate: float, betas: tuple[float, float] = (0.9, 0.999), epsilon: float = 1e-8,
        decay: float = 0.0,
    ) -> torch.optim.Optimizer:  # fmt: skip
        """torch's optimizer of the learner's parameters, at a peak rate; `decay` is of matrices alone."""


def groups_of(learner: Learner, *, rate: float, decay: float, apart: list[nn.Parameter] | None = None) -> Groups:
    """The learner's parameters: matrices, which decay; vectors, which do not; the objective's own, at its `own_rate`.

    apart: matrices that make a group of their own, the first one, with `apart` true.
    """
    lonely = {id(one) for one in apart or ()}
    own = {id(one) for one in (learner.extra.parameters() if learner.extra is not None else ())}
    own = own if learner.objective.own_rate is not None else set()
    free = [one for one in learner.parameters() if one.requires_grad]
    rest = [one for one in free if id(one) not in lonely | own]
    groups: Groups = [
        {"params": [one for one in free if id(one) in lonely], "weight_decay": decay, "apart": True},
        {"params": [one for one in rest if one.ndim > 1], "weight_decay": decay},
        {"params": [one for one in rest if one.ndim <= 1], "weight_decay": 0.0},
        {"params": [one for one in free if id(one) in own], "weight_decay": 0.0, "lr": learner.objective.own_rate},
    ]
    return [{"lr": rate, "apart": False} | group for group in groups if group["params"]]


OPTIMISERS: Registry[type[Optimiser]] = Registry("optimiser", "headscan.training.optimisers")
"""All optimisers by name; `registry.build(name, parameters)` makes one."""


def optimiser_of(given: str | Optimiser) -> Optimiser:
    """The optimiser of a name, with its default parameters; one that is made already is returned."""
    return given if isinstance(given, Optimiser) else cast(Optimiser, OPTIMISERS.build(given))


@OPTIMISERS.register("adamw")
@dataclass(frozen=True, kw_only=True)
class AdamW(Optimiser):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019), as torch has it."""

    def make(
        self, learner: Learner, *, rate: float, betas: tuple[float, float] = (0.9, 0.999), epsilon: float = 1e-8,
        decay: float = 0.0,
    ) -> torch.optim.Optimizer:  # fmt: skip
        return torch.optim.AdamW(groups_of(learner, rate=rate, decay=decay), lr=rate, betas=betas, eps=epsilon)
