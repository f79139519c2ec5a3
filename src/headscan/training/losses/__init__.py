"""Losses: pure functions of hidden states, embeddings and targets."""

from __future__ import annotations

from headscan.training.losses.cross_entropy import IGNORE, MASKINGS, ce_loss, full_ce_loss, gather_rows, mask_tokens
from headscan.training.losses.cwt import CWT_FORMS, cwt_loss, floor_of, in_batch_accuracy
from headscan.training.losses.linear import available_kernels, has_fused
from headscan.training.losses.sampled import (
    AdaptiveSoftmax,
    infonce_loss,
    log_unigram,
    nce_loss,
    sample_noise,
    sampled_softmax_loss,
)
from headscan.training.losses.shared import Pool, gather_ids, pool_of

__all__ = [
    "CWT_FORMS", "IGNORE", "MASKINGS", "AdaptiveSoftmax", "Pool", "available_kernels", "ce_loss", "cwt_loss", "floor_of",
    "full_ce_loss", "gather_ids", "gather_rows", "has_fused", "in_batch_accuracy", "infonce_loss", "log_unigram",
    "mask_tokens", "nce_loss", "pool_of", "sample_noise", "sampled_softmax_loss",
]  # fmt: skip
