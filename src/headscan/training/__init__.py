"""The cure: language models trained without a prediction head, and masked mixers, beside the usual way.

- `train`, `recover`, `evaluate`: the three verbs
- `losses`: pure functions of hidden states, embeddings and targets; `objectives`, `regularisers`: what is minimised
- `recipes`, `data`, `tokenizers`: what is trained, and on what
- `learner`, `trainer`, `geometry`, `run`: how it is trained, and watched
- `recoveries`: getting a head back; `tasks`: what came of it
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headscan.training import losses
from headscan.training.losses import *  # noqa: F403

if TYPE_CHECKING:
    from headscan.training.checkpoints import last_checkpoint as last_checkpoint
    from headscan.training.data import Masker as Masker
    from headscan.training.data import PackedText as PackedText
    from headscan.training.data import StreamedText as StreamedText
    from headscan.training.evaluation import evaluate as evaluate
    from headscan.training.fitting import fit_head as fit_head
    from headscan.training.folding import fold_bias as fold_bias
    from headscan.training.geometry import GeometryCallback as GeometryCallback
    from headscan.training.geometry import measure_sites as measure_sites
    from headscan.training.head_recovery import recover as recover
    from headscan.training.learner import Learner as Learner
    from headscan.training.likelihood import perplexity as perplexity
    from headscan.training.objective import OBJECTIVES as OBJECTIVES
    from headscan.training.objective import LossInputs as LossInputs
    from headscan.training.objective import Objective as Objective
    from headscan.training.objective import Reading as Reading
    from headscan.training.objective import objective_of as objective_of
    from headscan.training.recipes import RECIPES as RECIPES
    from headscan.training.recipes import Recipe as Recipe
    from headscan.training.recipes import recipe_of as recipe_of
    from headscan.training.recovery import RECOVERIES as RECOVERIES
    from headscan.training.recovery import Recovery as Recovery
    from headscan.training.recovery import recover_head as recover_head
    from headscan.training.regulariser import REGULARISERS as REGULARISERS
    from headscan.training.result import EvaluationResult as EvaluationResult
    from headscan.training.result import RecoverResult as RecoverResult
    from headscan.training.result import TrainResult as TrainResult
    from headscan.training.run import build as build
    from headscan.training.run import train as train
    from headscan.training.settings import Evaluating as Evaluating
    from headscan.training.settings import Recovering as Recovering
    from headscan.training.settings import Training as Training
    from headscan.training.task import TASKS as TASKS
    from headscan.training.task import Evaluated as Evaluated
    from headscan.training.task import Task as Task
    from headscan.training.task import evaluate_task as evaluate_task
    from headscan.training.tokenizers import fit_tokenizer as fit_tokenizer
    from headscan.training.trainer import HeadlessTrainer as HeadlessTrainer
    from headscan.training.trainer import LossIsNotFinite as LossIsNotFinite

# Loaded when first asked for: the losses need torch alone, the rest transformers and its Trainer.
_HOMES = {
    "last_checkpoint": "checkpoints", "Masker": "data", "PackedText": "data", "StreamedText": "data",
    "evaluate": "evaluation", "fit_head": "fitting", "fold_bias": "folding", "GeometryCallback": "geometry",
    "measure_sites": "geometry", "recover": "head_recovery", "Learner": "learner", "perplexity": "likelihood",
    "OBJECTIVES": "objective", "LossInputs": "objective", "Objective": "objective", "Reading": "objective",
    "objective_of": "objective", "RECIPES": "recipes", "Recipe": "recipes", "recipe_of": "recipes",
    "RECOVERIES": "recovery", "Recovery": "recovery", "recover_head": "recovery", "REGULARISERS": "regulariser",
    "EvaluationResult": "result", "RecoverResult": "result", "TrainResult": "result", "build": "run", "train": "run",
    "Evaluating": "settings", "Recovering": "settings", "Training": "settings", "TASKS": "task", "Evaluated": "task",
    "Task": "task", "evaluate_task": "task", "fit_tokenizer": "tokenizers", "HeadlessTrainer": "trainer",
    "LossIsNotFinite": "trainer",
}  # fmt: skip

__all__ = [*losses.__all__, *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'headscan.training' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"headscan.training.{_HOMES[name]}"), name)
