"""The cure: language models trained without a prediction head, and masked mixers, beside the usual
way.

- `train`, `recover`: the verbs
- `losses`: pure functions of hidden states, embeddings and targets; `objective`: what is minimised
- `recipes`, `data`: what is trained, and on what
- `learner`, `trainer`, `run`: how it is trained; `trajectory`, `monitor`: how it is watched
- `recovery`: getting a head back
"""

from typing import TYPE_CHECKING, Any

from headscan.training.losses.cross_entropy import IGNORE, ce_loss, gather_rows, mask_tokens
from headscan.training.losses.linear import (
    CWT_FORMS,
    cwt_loss,
    floor_of,
    has_fused,
    in_batch_accuracy,
)
from headscan.training.losses.shared import Pool, gather_ids, log_unigram, pool_of

if TYPE_CHECKING:
    from headscan.training.checkpoints import last_checkpoint
    from headscan.training.data import Masker, PackedText, collate
    from headscan.training.heads import fold_bias
    from headscan.training.learner import OPTIMISERS, Learner, Optimiser, optimiser_of
    from headscan.training.monitor import (
        ALARMS,
        FAMILIES,
        TRACKERS,
        Alarm,
        AlarmRule,
        Monitor,
        Watch,
    )
    from headscan.training.objective import OBJECTIVES, REGULARISERS, LossInputs, Objective, Readout
    from headscan.training.recipes import RECIPES, Recipe, fit_tokenizer, recipe_of
    from headscan.training.recovery import (
        RECOVERIES,
        HeadRecovery,
        fit_head,
        perplexity,
        recover,
        recover_head,
    )
    from headscan.training.result import RecoverResult, TrainResult
    from headscan.training.run import build, train
    from headscan.training.trainer import HeadlessTrainer, LossIsNotFinite
    from headscan.training.trajectory import measure_sites

__all__ = [
    "ALARMS",
    "CWT_FORMS",
    "FAMILIES",
    "IGNORE",
    "OBJECTIVES",
    "OPTIMISERS",
    "RECIPES",
    "RECOVERIES",
    "REGULARISERS",
    "TRACKERS",
    "Alarm",
    "AlarmRule",
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
    "Pool",
    "Readout",
    "Recipe",
    "RecoverResult",
    "TrainResult",
    "Watch",
    "build",
    "ce_loss",
    "collate",
    "cwt_loss",
    "fit_head",
    "fit_tokenizer",
    "floor_of",
    "fold_bias",
    "gather_ids",
    "gather_rows",
    "has_fused",
    "in_batch_accuracy",
    "last_checkpoint",
    "log_unigram",
    "mask_tokens",
    "measure_sites",
    "optimiser_of",
    "perplexity",
    "pool_of",
    "recipe_of",
    "recover",
    "recover_head",
    "train",
]

# Loaded when first asked for: the losses need torch alone, the rest transformers and its Trainer.
_HOMES = {
    "checkpoints": ("last_checkpoint",),
    "data": ("Masker", "PackedText", "collate"),
    "heads": ("fold_bias",),
    "learner": ("OPTIMISERS", "Learner", "Optimiser", "optimiser_of"),
    "monitor": ("ALARMS", "FAMILIES", "TRACKERS", "Alarm", "AlarmRule", "Monitor", "Watch"),
    "objective": ("OBJECTIVES", "REGULARISERS", "LossInputs", "Objective", "Readout"),
    "recipes": ("RECIPES", "Recipe", "fit_tokenizer", "recipe_of"),
    "recovery": ("RECOVERIES", "HeadRecovery", "fit_head", "perplexity", "recover", "recover_head"),
    "result": ("RecoverResult", "TrainResult"),
    "run": ("build", "train"),
    "trainer": ("HeadlessTrainer", "LossIsNotFinite"),
    "trajectory": ("measure_sites",),
}
_PLACES = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'headscan.training' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"headscan.training.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
