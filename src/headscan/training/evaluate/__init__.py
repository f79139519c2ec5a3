"""What a trained model can do, measured offline: likelihood, minimal pairs, sentence vectors, probes."""

from __future__ import annotations

from headscan.training.evaluate.balanced import balanced_cross_entropy, finetune_classifier
from headscan.training.evaluate.blimp import blimp, read_blimp
from headscan.training.evaluate.lambada import lambada, read_lambada
from headscan.training.evaluate.likelihood import bytes_of_tokens, log_likelihood, perplexity, token_losses
from headscan.training.evaluate.sentences import matthews, probe, retrieval, sentence_vectors, similarity
from headscan.training.evaluate.sets import evaluate, read_cola, read_pud, read_sst2, read_stsb

__all__ = [
    "balanced_cross_entropy",
    "blimp",
    "bytes_of_tokens",
    "evaluate",
    "finetune_classifier",
    "lambada",
    "log_likelihood",
    "matthews",
    "perplexity",
    "probe",
    "read_blimp",
    "read_cola",
    "read_lambada",
    "read_pud",
    "read_sst2",
    "read_stsb",
    "retrieval",
    "sentence_vectors",
    "similarity",
    "token_losses",
]
