"""What caused the geometry: next-token prediction on sparse data, from counts to a certified prediction.

`headscan.ntp.run(text, tokenizer=..., order=3)` goes the whole way, from a text to a result with its page.
Its parts work on matrices [contexts, vocabulary]:

- `SoftLabels`, `Supports`: what followed what; `describe`, `cross_entropy`, `unseen_mass`: the data's own numbers
- `sparse_component`, `in_support`, `out_of_support`: the finite part of the logits, and the subspaces
- `svm`, `certificate`, `estimate_cost`: the growing part, with a certified gap; `predict`: both parts and embeddings
- `train_features`: gradient descent and Adam on unconstrained features
- `support_metrics` (SC1-SC6), `collapse_metrics` (NC1-NC5), `gram_cosine`, `pattern_similarity`: models against it
- `support_spectrum`: the proxy at corpus scale; `axes`, `analogy`: word geometry
- `threshold_sweep`, `bootstrap`: error bars
"""

from __future__ import annotations

from headscan.ntp.entropy import bootstrap, cross_entropy, describe, threshold_sweep, unseen_mass, zipf_exponent
from headscan.ntp.features import CollapseMetrics, FeatureRun, collapse_metrics, train_features
from headscan.ntp.labels import SoftLabels, Supports
from headscan.ntp.predicting import run
from headscan.ntp.prediction import (
    Prediction,
    SupportSpectrum,
    analogy,
    axes,
    cosine,
    early_spectrum,
    gram_cosine,
    neighbours,
    pattern_similarity,
    predict,
    support_spectrum,
)
from headscan.ntp.result import NtpResult
from headscan.ntp.subspace import in_support, in_support_dimension, out_of_support, sparse_component
from headscan.ntp.support_metrics import Embeddings, SupportMetrics, collapse, support_metrics
from headscan.ntp.svm import CentredCertificate, SvmSolution, certificate, estimate_cost, svm

__all__ = [
    "CentredCertificate", "CollapseMetrics", "Embeddings", "FeatureRun", "NtpResult", "Prediction", "SoftLabels",
    "SupportMetrics", "SupportSpectrum", "Supports", "SvmSolution", "analogy", "axes", "bootstrap", "certificate",
    "collapse", "collapse_metrics", "cosine", "cross_entropy", "describe", "early_spectrum", "estimate_cost",
    "gram_cosine", "in_support", "in_support_dimension", "neighbours", "out_of_support", "pattern_similarity",
    "predict", "run", "sparse_component", "support_metrics", "support_spectrum", "svm", "threshold_sweep",
    "train_features", "unseen_mass", "zipf_exponent",
]  # fmt: skip
