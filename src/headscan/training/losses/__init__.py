"""Losses: pure functions of hidden states, embeddings and targets."""

from __future__ import annotations

from headscan.training.losses.cross_entropy import IGNORE, ce_loss, full_ce_loss, gather_rows
from headscan.training.losses.cwt import CWT_FORMS, cwt_loss
from headscan.training.losses.distributed import gather_ids
from headscan.training.losses.infonce import infonce_loss
from headscan.training.losses.kernels import available_kernels, has_fused
from headscan.training.losses.masking import MASKINGS, mask_tokens
from headscan.training.losses.monitors import floor_of, in_batch_accuracy
from headscan.training.losses.sampled import (
    AdaptiveSoftmax,
    log_unigram,
    nce_loss,
    sample_noise,
    sampled_softmax_loss,
)
from headscan.training.losses.unique import Pool, pool_of

__all__ = [
    "CWT_FORMS", "IGNORE", "MASKINGS", "AdaptiveSoftmax", "Pool", "available_kernels", "ce_loss", "cwt_loss", "floor_of",
    "full_ce_loss", "gather_ids", "gather_rows", "has_fused", "in_batch_accuracy", "infonce_loss", "log_unigram",
    "mask_tokens", "nce_loss", "pool_of", "sample_noise", "sampled_softmax_loss",
]  # fmt: skip
