"""The methods by name: each turns a prompt into one score a token and a step."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from headscan.attribution.coalitions import Coalitions
from headscan.attribution.engine import Engine
from headscan.attribution.gradients import gradient_x_input, integrated_gradients
from headscan.attribution.memory import plan
from headscan.attribution.shapley import shapley
from headscan.attribution.target import Target
from headscan.attribution.units import Unit, gathered, spread
from headscan.errors import BadInput
from headscan.text.prompts import Prompt

__all__ = ["METHODS", "Map", "Setting", "measure"]


@dataclass
class Map:
    """Scores of one method.

    Attributes:
        method: its name.
        tokens: [S, T], one score a token; of methods that take whole units away, the unit's shared out evenly.
        units: [S, n], one score a unit.
        extra: what the method says of itself: completeness, standard error, evaluations.
        seconds: how long it took.
    """

    method: str
    tokens: np.ndarray
    units: np.ndarray
    extra: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass
class Setting:
    """Everything a method may need."""

    engine: Engine
    prompt: Prompt
    embeds: Tensor
    target: Target
    units: list[Unit]
    substitute: Tensor | None
    substitute_name: str
    fallback: Tensor  # stands for absent tokens where a vector is needed and `substitute` is removal
    signed: bool = True
    steps: int | None = None
    samples: int = 64
    seed: int = 0
    budget: int | None = None
    rows: int | None = None
    cached: bool = True

    def game(self, substitute: Tensor | None) -> Coalitions:
        """The prompt with units taken away."""
        planned = plan(self.engine.lens, len(self.prompt), len(self.target.steps), budget=self.budget, rows=self.rows)
        return Coalitions(self.engine, self.embeds, self.units, self.target, substitute, planned, self.cached)

    @property
    def filler(self) -> Tensor:
        """A vector for absent tokens."""
        return self.fallback if self.substitute is None else self.substitute


def measure(setting: Setting, method: str) -> Map:
    """Run a method by name.

    Raises:
        BadInput: there is no such method; the message lists them.
    """
    if method not in METHODS:
        raise BadInput(f"There is no method '{method}'; there are: {', '.join(METHODS)}.")
    start = time.perf_counter()
    found = METHODS[method](setting)
    found.method = method
    found.seconds = time.perf_counter() - start
    return found


def _gradient(setting: Setting) -> Map:
    scores = gradient_x_input(setting.engine, setting.embeds, setting.target, signed=setting.signed)
    return Map("", scores, gathered(scores, setting.units))


def _integrated(setting: Setting) -> Map:
    planned = plan(
        setting.engine.lens, len(setting.prompt), len(setting.target.steps), grad=True, budget=setting.budget,
        rows=setting.rows,
    )  # fmt: skip
    found = integrated_gradients(
        setting.engine, setting.embeds, setting.filler, setting.target, steps=setting.steps, rows=planned.rows,
        signed=setting.signed,
    )  # fmt: skip
    completeness = {
        "whole": found.whole.tolist(),
        "gap": found.gap.tolist(),
        "relative_gap": found.relative_gap.tolist(),
        "evaluations": found.evaluations,
        "segments": found.segments,
    }
    return Map("", found.scores, gathered(found.scores, setting.units), {"completeness": completeness})


def _occlusion(setting: Setting) -> Map:
    return _left_out(setting, setting.substitute)


def _leave_one_out(setting: Setting) -> Map:
    return _left_out(setting, None)


def _left_out(setting: Setting, substitute: Tensor | None) -> Map:
    """score_i = f(prompt) - f(prompt with unit i replaced); for the target "all", the L1 distance of the logits."""
    game = setting.game(substitute)
    values = game.values(np.concatenate([game.everything[None], game.without_each()]))
    scores = (values[:1] - values[1:]).T.astype(np.float64)
    scores = scores if setting.signed else np.abs(scores)
    return Map("", spread(scores, setting.units, len(setting.prompt)), scores, {"evaluations": len(values)})


def _shapley(setting: Setting) -> Map:
    found = shapley(setting.game(setting.filler), samples=setting.samples, seed=setting.seed)
    scores = found.values if setting.signed else np.abs(found.values)
    extra = {"evaluations": found.evaluations, "exact": found.exact, "standard_error": found.error.tolist()}
    return Map("", spread(scores, setting.units, len(setting.prompt)), scores, extra)


def _combined(setting: Setting) -> Map:
    """The mean of gradient x input and occlusion, each divided by its largest size in the step."""
    parts = [_gradient(setting), _occlusion(setting)]
    return Map(
        "",
        sum((_largest_one(part.tokens) for part in parts), np.zeros(())) / 2,
        sum((_largest_one(part.units) for part in parts), np.zeros(())) / 2,
    )


def _largest_one(scores: np.ndarray) -> np.ndarray:
    largest = np.abs(scores).max(-1, keepdims=True)
    return np.divide(scores, largest, out=np.zeros_like(scores), where=largest > 0)


METHODS: dict[str, Callable[[Setting], Map]] = {
    "gradient-x-input": _gradient,
    "occlusion": _occlusion,
    "combined": _combined,
    "integrated-gradients": _integrated,
    "leave-one-out": _leave_one_out,
    "shapley": _shapley,
}
"""Name -> method. `leave-one-out` is occlusion by removal."""


def names(method: str | Sequence[str]) -> list[str]:
    """One or more method names, without repeats; "all" is every method.

    >>> names("occlusion,shapley")
    ['occlusion', 'shapley']
    """
    wanted = method.split(",") if isinstance(method, str) else list(method)
    wanted = [one.strip() for one in wanted if one.strip()]
    if wanted == ["all"]:
        wanted = list(METHODS)
    for one in wanted or ["(none)"]:
        if one not in METHODS:
            raise BadInput(f"There is no method '{one}'; there are: {', '.join(METHODS)}.")
    return list(dict.fromkeys(wanted))
