"""Getting a head back: from a body trained without one to next-token probabilities.

The contrastive optimum is z_v = log p(v | context) - log p(v) + const(context): negatives come with their own
frequency, so the model learns what the context *adds* to it. What is missing is the log of the unigram probability:

    softmax(o . e_v + log p(v))

is a language model, without any training. A way of recovering is one class in one file of `headscan.training.recoveries`.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from headscan.model.tables import embedding_table
from headscan.run import BadInput, Progress, Registry, Settings
from headscan.training.folding import divide_last_norm, fold_bias
from headscan.training.heads import body_of
from headscan.training.losses import log_unigram
from headscan.training.records import CurvePoint

__all__ = ["RECOVERIES", "HeadRecovery", "recover_head", "recovery_of"]


@dataclass(frozen=True, kw_only=True)
class HeadRecovery(Settings):
    """A way to give a headless body a head; its `Option` fields are its parameters.

    tied: the head's rows are the input's own. biased: the log of the unigram probability is added, where counts are
    given. needs_counts: it makes no sense without them.
    """

    tied: ClassVar[bool] = False
    biased: ClassVar[bool] = True
    needs_counts: ClassVar[bool] = False

    @property
    def budget(self) -> tuple[int, int]:
        """(steps, windows a step) that it trains for."""
        return 0, 0

    def prepare(self, whole: PreTrainedModel) -> None:
        """Say what of the model with its new head is to be trained."""

    def train(
        self, whole: PreTrainedModel, rows: npt.NDArray[np.integer], *, seed: int = 0, progress: Progress | None = None
    ) -> list[CurvePoint]:
        """Train it on windows [n, T]; the curve. Most need no training."""
        return []


RECOVERIES: Registry[type[HeadRecovery]] = Registry("head recovery", "headscan.training.recoveries")
"""All ways by name; `registry.build(name, parameters)` makes one."""


def recovery_of(given: str | HeadRecovery) -> HeadRecovery:
    """The recovery of a name, with its default parameters; one that is made already is returned."""
    made = given if isinstance(given, HeadRecovery) else RECOVERIES.build(given)
    assert isinstance(made, HeadRecovery)
    return made


def recover_head(
    model: PreTrainedModel, recovery: str | HeadRecovery = "bias", *, counts: Int[Tensor, " vocabulary"] | None = None,
    temperature: float = 1.0, rows: Float[Tensor, "vocabulary width"] | None = None, copied: bool = True,
) -> PreTrainedModel:  # fmt: skip
    """A causal language model with a head, from a headless body (both of transformers).

    The body is copied, unless `copied` is False and nothing but a head is missing: then it is the new model's own.

    recovery: "tied": the input rows as they are. "bias": these and the log of the unigram probability, no training.
    "probe": a head of its own, started at "bias" (where counts are given; else at the rows), the body frozen.
    "finetune": the same start, everything trainable (the published one starts at the rows). Both are to be trained.
    counts: token counts of the training text, for "bias". temperature: the one of the contrastive loss: the scores are
    h . e / T. rows: the table that the loss compared with, where that was not the input embeddings (the objective
    "nce"); "tied" is then untied all the same.

    The bias is folded into the head's rows where the body ends in a LayerNorm (see `fold_bias`): the model then has
    no parameter that transformers do not know, and `AutoModelForCausalLM.from_pretrained` loads it anywhere. Elsewhere
    (RMSNorm) `lm_head.bias` is a parameter that only a model built here has.
    Raises BadInput where counts are missing or do not fit.
    """
    how = recovery_of(recovery)
    if how.needs_counts and counts is None:
        raise BadInput("The unigram bias needs the token counts of the training text.")
    if not temperature > 0:
        raise BadInput(f"temperature must be above 0, not {temperature}.")
    body = body_of(model)
    config = copy.deepcopy(model.config)
    config.tie_word_embeddings = how.tied and rows is None
    whole = None if copied or config.tie_word_embeddings else _around(body, config)
    if whole is None:
        whole = AutoModelForCausalLM.from_config(config, dtype=body.dtype).to(body.device)
        body_of(whole).load_state_dict(body.state_dict())
    if config.tie_word_embeddings:
        whole.tie_weights()
        if temperature != 1:  # tied rows are the input's too: what can be divided is the state that meets them
            divide_last_norm(body_of(whole), temperature)
        whole.eval()
        return whole
    table = embedding_table(body).detach()
    head = whole.get_output_embeddings()
    assert head is not None
    assert isinstance(head.weight, Tensor)
    head.weight.data.copy_((table if rows is None else rows.detach()) / temperature)
    if counts is not None and how.biased:
        if len(counts) != len(table):
            raise BadInput(f"There are counts of {len(counts)} tokens but the model has {len(table)}.")
        fold_bias(whole, log_unigram(counts, 0.5))
    how.prepare(whole)
    whole.eval()
    return whole


def _around(body: PreTrainedModel, config: Any) -> PreTrainedModel | None:
    """The causal language model whose body is this very one, its head empty; None where more than a head is missing."""
    with torch.device("meta"):
        whole: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=body.dtype)
    head, prefix = whole.get_output_embeddings(), whole.base_model_prefix
    if head is None or type(getattr(whole, prefix, None)) is not type(body):
        return None
    setattr(whole, prefix, body)
    head.to_empty(device=body.device)
    for parameter in head.parameters():
        parameter.data.zero_()
    left = [*whole.parameters(), *whole.buffers()]
    return None if any(tensor.device.type == "meta" for tensor in left) else whole
