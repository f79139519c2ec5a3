"""Training of language models without a prediction head, of masked mixers, and the usual way.

- `run` (the verb `train`), `recovery_run` (the verb `recover`)
- `losses`: pure functions of hidden states, embeddings and targets; `objective`: the losses by name
- `recipes`, `data`: models, their settings and their windows of text
- `learner`, `optimisers`, `trainer`, `trainer_arguments`, `checkpoints`: the training itself
- `trajectory`, `monitor`: measurements during a training; `healthy_runs`: bands to compare with
- `recovery`: methods that give a body a head; `likelihood`: held-out nats and bits a byte
- `records`, `result`: the data of a result
"""

from typing import TYPE_CHECKING, Any

from headscan.training.losses.contrastive import CWT_FORMS, cwt_loss, floor_of, in_batch_accuracy
from headscan.training.losses.cross_entropy import IGNORE, ce_loss, gather_rows, mask_tokens
from headscan.training.losses.linear import has_fused
from headscan.training.losses.shared import Pool, gather_ids, log_unigram, pool_of

if TYPE_CHECKING:
    from headscan.training.checkpoints import last_checkpoint
    from headscan.training.data import Masker, PackedText, collate
    from headscan.training.heads import fold_bias
    from headscan.training.learner import Learner
    from headscan.training.likelihood import perplexity
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
    from headscan.training.optimisers import OPTIMISERS, Optimiser, optimiser_of
    from headscan.training.recipes import RECIPES, Recipe, fit_tokenizer, recipe_of
    from headscan.training.recovery import RECOVERIES, HeadRecovery, fit_head, recover_head
    from headscan.training.recovery_run import recover
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

# These modules are loaded when a name of theirs is first read: the losses need torch alone, the
# others transformers and its Trainer.
_NAMES_OF_MODULE = {
    "checkpoints": ("last_checkpoint",),
    "data": ("Masker", "PackedText", "collate"),
    "heads": ("fold_bias",),
    "learner": ("Learner",),
    "likelihood": ("perplexity",),
    "monitor": ("ALARMS", "FAMILIES", "TRACKERS", "Alarm", "AlarmRule", "Monitor", "Watch"),
    "objective": ("OBJECTIVES", "REGULARISERS", "LossInputs", "Objective", "Readout"),
    "optimisers": ("OPTIMISERS", "Optimiser", "optimiser_of"),
    "recipes": ("RECIPES", "Recipe", "fit_tokenizer", "recipe_of"),
    "recovery": ("RECOVERIES", "HeadRecovery", "fit_head", "recover_head"),
    "recovery_run": ("recover",),
    "result": ("RecoverResult", "TrainResult"),
    "run": ("build", "train"),
    "trainer": ("HeadlessTrainer", "LossIsNotFinite"),
    "trajectory": ("measure_sites",),
}
_MODULE_OF_NAME = {name: module for module, names in _NAMES_OF_MODULE.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF_NAME:
        raise AttributeError(f"module 'headscan.training' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"headscan.training.{_MODULE_OF_NAME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
