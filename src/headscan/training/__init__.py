"""The cure: language models trained without a prediction head, and masked mixers, beside the usual way.

- `train`, `recover`, `evaluate`: the three verbs
- `losses`: pure functions of hidden states, embeddings and targets; `objectives`, `regularisers`: what is minimised
- `recipes`, `data`, `tokenizers`: what is trained, and on what
- `learner`, `trainer`, `run`: how it is trained; `geometry`, `monitor`: how it is watched
- `recoveries`: getting a head back; `tasks`: what came of it
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headscan.training.losses import (
    CWT_FORMS,
    IGNORE,
    MASKINGS,
    AdaptiveSoftmax,
    Pool,
    available_kernels,
    ce_loss,
    cwt_loss,
    floor_of,
    full_ce_loss,
    gather_ids,
    gather_rows,
    has_fused,
    in_batch_accuracy,
    infonce_loss,
    log_unigram,
    mask_tokens,
    nce_loss,
    pool_of,
    sample_noise,
    sampled_softmax_loss,
)  # fmt: skip

if TYPE_CHECKING:
    from headscan.training.arms import ARMS, Arm
    from headscan.training.centring import CentreHead, centre_head
    from headscan.training.checkpoints import last_checkpoint
    from headscan.training.course import Phases, phases
    from headscan.training.data import Masker, PackedText, StreamedText, collate
    from headscan.training.evaluation import evaluate
    from headscan.training.fitting import fit_head
    from headscan.training.folding import fold_bias
    from headscan.training.geometry import measure_sites
    from headscan.training.head_recovery import recover
    from headscan.training.learner import Learner
    from headscan.training.likelihood import perplexity
    from headscan.training.monitor import ALARMS, Alarm, AlarmRule, Monitor, Watch
    from headscan.training.objective import OBJECTIVES, LossInputs, Objective, Readout
    from headscan.training.optimiser import OPTIMISERS, Optimiser, optimiser_of
    from headscan.training.racing.result import TournamentResult
    from headscan.training.racing.settings import Tournament
    from headscan.training.racing.verb import tournament
    from headscan.training.recipes import RECIPES, Recipe, recipe_of
    from headscan.training.recovery import RECOVERIES, HeadRecovery, recover_head
    from headscan.training.regulariser import REGULARISERS
    from headscan.training.result import EvaluationResult, RecoverResult, TrainResult
    from headscan.training.run import build, train
    from headscan.training.settings import Evaluating, Recovering, Training
    from headscan.training.task import TASKS, Evaluated, Task, evaluate_task
    from headscan.training.tokenizers import fit_tokenizer
    from headscan.training.trainer import HeadlessTrainer, LossIsNotFinite

__all__ = [
    "ALARMS",
    "ARMS",
    "CWT_FORMS",
    "IGNORE",
    "MASKINGS",
    "OBJECTIVES",
    "OPTIMISERS",
    "RECIPES",
    "RECOVERIES",
    "REGULARISERS",
    "TASKS",
    "AdaptiveSoftmax",
    "Alarm",
    "AlarmRule",
    "Arm",
    "CentreHead",
    "Evaluated",
    "Evaluating",
    "EvaluationResult",
    "HeadRecovery",
    "HeadlessTrainer",
    "Learner",
    "LossInputs",
    "LossIsNotFinite",
    "Masker",
    "Monitor",
    "Objective",
    "Optimiser",
    "PackedText",
    "Phases",
    "Pool",
    "Readout",
    "Recipe",
    "RecoverResult",
    "Recovering",
    "StreamedText",
    "Task",
    "Tournament",
    "TournamentResult",
    "TrainResult",
    "Training",
    "Watch",
    "available_kernels",
    "build",
    "ce_loss",
    "centre_head",
    "collate",
    "cwt_loss",
    "evaluate",
    "evaluate_task",
    "fit_head",
    "fit_tokenizer",
    "floor_of",
    "fold_bias",
    "full_ce_loss",
    "gather_ids",
    "gather_rows",
    "has_fused",
    "in_batch_accuracy",
    "infonce_loss",
    "last_checkpoint",
    "log_unigram",
    "mask_tokens",
    "measure_sites",
    "nce_loss",
    "optimiser_of",
    "perplexity",
    "phases",
    "pool_of",
    "recipe_of",
    "recover",
    "recover_head",
    "sample_noise",
    "sampled_softmax_loss",
    "tournament",
    "train",
]  # fmt: skip

# Loaded when first asked for: the losses need torch alone, the rest transformers and its Trainer.
_HOMES = {
    "tournament": "racing.verb", "Tournament": "racing.settings", "TournamentResult": "racing.result",
    "ALARMS": "monitor", "Alarm": "monitor", "AlarmRule": "monitor", "Monitor": "monitor", "Watch": "monitor",
    "ARMS": "arms", "Arm": "arms", "CentreHead": "centring", "centre_head": "centring", "collate": "data", "OPTIMISERS":
    "optimiser", "Optimiser": "optimiser", "optimiser_of": "optimiser",
    "last_checkpoint": "checkpoints", "Masker": "data", "PackedText": "data", "StreamedText": "data", "evaluate":
    "evaluation", "fit_head": "fitting", "fold_bias": "folding", "measure_sites":
    "geometry", "recover": "head_recovery", "Learner": "learner", "perplexity": "likelihood", "OBJECTIVES":
    "objective", "LossInputs": "objective", "Objective": "objective", "Readout": "objective", "RECIPES": "recipes",
    "Recipe": "recipes", "recipe_of": "recipes", "RECOVERIES": "recovery", "HeadRecovery": "recovery", "recover_head":
    "recovery", "REGULARISERS": "regulariser", "EvaluationResult": "result", "RecoverResult": "result",
    "TrainResult": "result", "build": "run", "train": "run", "Evaluating": "settings", "Recovering": "settings",
    "Training": "settings", "TASKS": "task", "Evaluated": "task", "Task": "task", "evaluate_task": "task",
    "Phases": "course", "phases": "course", "fit_tokenizer": "tokenizers", "HeadlessTrainer": "trainer",
    "LossIsNotFinite": "trainer",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'headscan.training' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"headscan.training.{_HOMES[name]}"), name)
