"""Losses: pure functions of hidden states, embeddings and targets."""

from headscan.training.losses.contrastive import CWT_FORMS, cwt_loss, floor_of, in_batch_accuracy
from headscan.training.losses.cross_entropy import IGNORE, ce_loss, gather_rows, mask_tokens
from headscan.training.losses.linear import has_fused
from headscan.training.losses.shared import Pool, gather_ids, log_unigram, pool_of

__all__ = [
    "CWT_FORMS",
    "IGNORE",
    "Pool",
    "ce_loss",
    "cwt_loss",
    "floor_of",
    "gather_ids",
    "gather_rows",
    "has_fused",
    "in_batch_accuracy",
    "log_unigram",
    "mask_tokens",
    "pool_of",
]
