"""The cure: language models trained without a prediction head, and masked mixers, beside the usual way.

- `train`, `recover`: the verbs
- `losses`: pure functions of hidden states, embeddings and targets; `objectives`, `regularisers`: what is minimised
- `recipes`, `data`, `tokenizers`: what is trained, and on what
- `learner`, `trainer`, `run`: how it is trained; `geometry`, `monitor`: how it is watched
- `recovery`: getting a head back
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headscan.training.losses import (
    CWT_FORMS,
    IGNORE,
    Pool,
    ce_loss,
    cwt_loss,
    floor_of,
    gather_ids,
    gather_rows,
    has_fused,
    in_batch_accuracy,
    log_unigram,
    mask_tokens,
    pool_of,
)  # fmt: skip

if TYPE_CHECKING:
    from headscan.training.checkpoints import last_checkpoint
    from headscan.training.data import Masker, PackedText, collate
    from headscan.training.head_recovery import recover
    from headscan.training.heads import fold_bias
    from headscan.training.learner import Learner
    from headscan.training.likelihood import perplexity
    from headscan.training.monitor import ALARMS, Alarm, AlarmRule, Monitor, Watch
    from headscan.training.objective import OBJECTIVES, REGULARISERS, LossInputs, Objective, Readout
    from headscan.training.optimisers import OPTIMISERS, Optimiser, optimiser_of
    from headscan.training.recipes import RECIPES, Recipe, fit_tokenizer, recipe_of
    from headscan.training.recovery import RECOVERIES, HeadRecovery, fit_head, recover_head
    from headscan.training.result import RecoverResult, TrainResult
    from headscan.training.run import build, train
    from headscan.training.trainer import HeadlessTrainer, LossIsNotFinite
    from headscan.training.trajectory import measure_sites

__all__ = [
    "ALARMS", "CWT_FORMS", "IGNORE", "OBJECTIVES", "OPTIMISERS", "RECIPES", "RECOVERIES", "REGULARISERS", "Alarm",
    "AlarmRule", "HeadRecovery", "HeadlessTrainer", "Learner", "LossInputs", "LossIsNotFinite", "Masker",
    "Monitor", "Objective", "Optimiser", "PackedText", "Pool", "Readout", "Recipe", "RecoverResult", "TrainResult",
    "Watch", "build", "ce_loss", "collate", "cwt_loss", "fit_head", "fit_tokenizer",
    "floor_of", "fold_bias", "gather_ids", "gather_rows", "has_fused", "in_batch_accuracy", "last_checkpoint",
    "log_unigram", "mask_tokens", "measure_sites", "optimiser_of", "perplexity", "pool_of", "recipe_of", "recover",
    "recover_head", "train",
]  # fmt: skip

# Loaded when first asked for: the losses need torch alone, the rest transformers and its Trainer.
_HOMES = {
    "learner": ("Learner",),
    "checkpoints": ("last_checkpoint",),
    "trajectory": ("measure_sites",),
    "data": ("Masker", "PackedText", "collate"),
    "recovery": ("fit_head", "RECOVERIES", "HeadRecovery", "recover_head"),
    "heads": ("fold_bias",),
    "head_recovery": ("recover",),
    "likelihood": ("perplexity",),
    "monitor": ("ALARMS", "Alarm", "AlarmRule", "Monitor", "Watch"),
    "objective": ("OBJECTIVES", "LossInputs", "Objective", "Readout", "REGULARISERS"),
    "optimisers": ("OPTIMISERS", "Optimiser", "optimiser_of"),
    "recipes": ("RECIPES", "Recipe", "recipe_of", "fit_tokenizer"),
    "result": ("RecoverResult", "TrainResult"),
    "run": ("build", "train"),
    "trainer": ("HeadlessTrainer", "LossIsNotFinite"),
}
_PLACES = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'headscan.training' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"headscan.training.{_PLACES[name]}"), name)
