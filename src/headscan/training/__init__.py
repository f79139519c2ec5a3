"""The cure: language models trained without a prediction head, and masked mixers, beside the usual way.

- `losses`: pure functions of hidden states, embeddings and targets
- `recipes`, `data`, `tokenizers`: what is trained, and on what
- `learner`, `trainer`, `geometry`, `run`: how it is trained, and watched
- `readout`, `recovery`: getting a head back
- `evaluate`, `evaluation`: what came of it
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headscan.training import losses
from headscan.training.losses import *  # noqa: F403

if TYPE_CHECKING:
    from headscan.training.data import Masker as Masker
    from headscan.training.data import PackedText as PackedText
    from headscan.training.data import StreamedText as StreamedText
    from headscan.training.evaluation import EvaluationResult as EvaluationResult
    from headscan.training.evaluation import evaluate_model as evaluate_model
    from headscan.training.geometry import GeometryCallback as GeometryCallback
    from headscan.training.geometry import measure_sites as measure_sites
    from headscan.training.learner import HEADLESS as HEADLESS
    from headscan.training.learner import OBJECTIVES as OBJECTIVES
    from headscan.training.learner import Learner as Learner
    from headscan.training.learner import Objective as Objective
    from headscan.training.readout import RECOVERIES as RECOVERIES
    from headscan.training.readout import fold_bias as fold_bias
    from headscan.training.readout import recover as recover
    from headscan.training.recipes import RECIPES as RECIPES
    from headscan.training.recipes import Recipe as Recipe
    from headscan.training.recipes import recipe_of as recipe_of
    from headscan.training.recovery import fit_head as fit_head
    from headscan.training.recovery import recover_model as recover_model
    from headscan.training.result import TrainResult as TrainResult
    from headscan.training.run import train as train
    from headscan.training.tokenizers import fit_tokenizer as fit_tokenizer
    from headscan.training.trainer import HeadlessTrainer as HeadlessTrainer
    from headscan.training.trainer import last_checkpoint as last_checkpoint

# Loaded when first asked for: the losses need torch alone, the rest transformers and its Trainer.
_HOMES = {
    "Masker": "data",
    "PackedText": "data",
    "StreamedText": "data",
    "EvaluationResult": "evaluation",
    "evaluate_model": "evaluation",
    "GeometryCallback": "geometry",
    "measure_sites": "geometry",
    "HEADLESS": "learner",
    "OBJECTIVES": "learner",
    "Learner": "learner",
    "Objective": "learner",
    "RECIPES": "recipes",
    "Recipe": "recipes",
    "recipe_of": "recipes",
    "RECOVERIES": "readout",
    "fold_bias": "readout",
    "recover": "readout",
    "fit_head": "recovery",
    "recover_model": "recovery",
    "TrainResult": "result",
    "train": "run",
    "fit_tokenizer": "tokenizers",
    "HeadlessTrainer": "trainer",
    "LossIsNotFinite": "trainer",
    "last_checkpoint": "trainer",
}

__all__ = [*losses.__all__, *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'headscan.training' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"headscan.training.{_HOMES[name]}"), name)
