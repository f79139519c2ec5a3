"""The cure: language models trained without a prediction head, and masked mixers, beside the usual way.

- `objectives`: pure functions of hidden states, embeddings and targets
- `recipes`, `data`, `tokenizers`: what is trained, and on what
- `learner`, `trainer`, `geometry`, `run`: how it is trained, and watched
- `recover`, `recovery`: getting a head back
- `evaluate`: what came of it
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headscan.training import objectives
from headscan.training.objectives import *  # noqa: F403

if TYPE_CHECKING:
    from headscan.training.data import Masker, PackedText, StreamedText
    from headscan.training.geometry import GeometryCallback, measure_sites
    from headscan.training.learner import HEADLESS, OBJECTIVES, Learner, Objective
    from headscan.training.recipes import RECIPES, Recipe, recipe_of
    from headscan.training.recover import RECOVERIES, fold_bias, recover
    from headscan.training.recovery import fit_head, recover_model
    from headscan.training.result import TrainResult
    from headscan.training.run import train
    from headscan.training.tokenizers import fit_tokenizer
    from headscan.training.trainer import HeadlessTrainer, last_checkpoint

# Loaded when first asked for: the losses need torch alone, the rest transformers and its Trainer.
_HOMES = {
    "Masker": "data",
    "PackedText": "data",
    "StreamedText": "data",
    "GeometryCallback": "geometry",
    "measure_sites": "geometry",
    "HEADLESS": "learner",
    "OBJECTIVES": "learner",
    "Learner": "learner",
    "Objective": "learner",
    "RECIPES": "recipes",
    "Recipe": "recipes",
    "recipe_of": "recipes",
    "RECOVERIES": "recover",
    "fold_bias": "recover",
    "recover": "recover",
    "fit_head": "recovery",
    "recover_model": "recovery",
    "TrainResult": "result",
    "train": "run",
    "fit_tokenizer": "tokenizers",
    "HeadlessTrainer": "trainer",
    "last_checkpoint": "trainer",
}

__all__ = [*objectives.__all__, *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'headscan.training' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"headscan.training.{_HOMES[name]}"), name)
    globals()[name] = value  # a submodule of the same name (recover) would otherwise win the second time
    return value
