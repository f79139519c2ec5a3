"""What a trained model can do, measured offline: likelihood, minimal pairs, sentence vectors, probes."""

from __future__ import annotations

from headscan.training.evaluate.balanced import balanced_cross_entropy, finetune_classifier
from headscan.training.evaluate.blimp import blimp, read_blimp
from headscan.training.evaluate.harness import harness
from headscan.training.evaluate.lambada import lambada, read_lambada
from headscan.training.evaluate.likelihood import bytes_of_tokens, log_likelihood, perplexity, token_losses
from headscan.training.evaluate.pairs import pair_features, paraphrases, read_rte
from headscan.training.evaluate.sentences import matthews, probe, retrieval, sentence_vectors, similarity
from headscan.training.evaluate.sets import TASKS, evaluate, read_cola, read_pud, read_sst2, read_stsb
from headscan.training.evaluate.synonyms import synonyms

__all__ = [
    "TASKS",
    "balanced_cross_entropy",
    "blimp",
    "bytes_of_tokens",
    "evaluate",
    "finetune_classifier",
    "harness",
    "lambada",
    "log_likelihood",
    "matthews",
    "pair_features",
    "paraphrases",
    "perplexity",
    "probe",
    "read_blimp",
    "read_cola",
    "read_lambada",
    "read_pud",
    "read_rte",
    "read_sst2",
    "read_stsb",
    "retrieval",
    "sentence_vectors",
    "similarity",
    "synonyms",
    "token_losses",
]
