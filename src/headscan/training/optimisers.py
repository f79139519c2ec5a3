"""Optimisers: how gradients become steps. An optimiser is a class, here or in a plug-in."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn

from headscan.run import Registry, Settings
from headscan.training.learner import Learner

Groups = list[dict[str, Any]]
"""Groups of parameters as torch.optim takes them."""


@dataclass(frozen=True, kw_only=True)
class Optimiser(Settings, ABC):
    """A rule by which gradients become steps; its `Option` fields are its parameters, on the
    command line too.

    >>> optimiser_of("adamw")
    AdamW()
    """

    @property
    def name(self) -> str:
        return OPTIMISERS.name_of(self)

    @abstractmethod
    def make(
        self,
        learner: Learner,
        *,
        rate: float,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
        decay: float = 0.0,
    ) -> torch.optim.Optimizer:
        """Return torch's optimizer of the learner's parameters.

        Args:
            rate: peak learning rate.
            decay: weight decay, of matrices alone.
        """


OPTIMISERS: Registry[type[Optimiser]] = Registry("optimiser", "headscan.training.optimisers")
"""All optimisers by name; `registry.build(name, parameters)` makes one."""


def optimiser_of(optimiser: str | Optimiser) -> Optimiser:
    """Return the optimiser of a name, with its default parameters, or the optimiser itself."""
    if isinstance(optimiser, Optimiser):
        return optimiser
    return cast(Optimiser, OPTIMISERS.build(optimiser))


def groups_of(
    learner: Learner, *, rate: float, decay: float, apart: list[nn.Parameter] | None = None
) -> Groups:
    """Return the learner's trainable parameters in groups.

    Matrices decay and vectors do not; the objective's own parameters have its `own_rate` and do not
    decay. Empty groups are left out.

    Args:
        apart: matrices that form a group of their own, the first one, with `apart` true.
    """
    own_rate = learner.objective.own_rate
    own_parameters = [] if learner.extra is None else list(learner.extra.parameters())
    own_ids = set() if own_rate is None else {id(parameter) for parameter in own_parameters}
    apart_ids = {id(parameter) for parameter in apart or ()}

    separate: list[nn.Parameter] = []
    matrices: list[nn.Parameter] = []
    vectors: list[nn.Parameter] = []
    own: list[nn.Parameter] = []
    for parameter in learner.parameters():
        if not parameter.requires_grad:
            continue
        in_apart = id(parameter) in apart_ids
        in_own = id(parameter) in own_ids
        if in_apart:
            separate.append(parameter)
        if in_own:
            own.append(parameter)
        if not in_apart and not in_own:
            (matrices if parameter.ndim > 1 else vectors).append(parameter)

    groups: Groups = [
        {"params": separate, "weight_decay": decay, "apart": True},
        {"params": matrices, "weight_decay": decay},
        {"params": vectors, "weight_decay": 0.0},
        {"params": own, "weight_decay": 0.0, "lr": own_rate},
    ]
    return [{"lr": rate, "apart": False} | group for group in groups if group["params"]]


@OPTIMISERS.register("adamw")
class AdamW(Optimiser):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019), by torch."""

    def make(
        self,
        learner: Learner,
        *,
        rate: float,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
        decay: float = 0.0,
    ) -> torch.optim.Optimizer:
        groups = groups_of(learner, rate=rate, decay=decay)
        return torch.optim.AdamW(groups, lr=rate, betas=betas, eps=epsilon)
