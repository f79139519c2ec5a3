"""What caused the geometry: next-token prediction on sparse data, from counts to a certified prediction.

`headscan.ntp.run(text, tokenizer=..., order=3)` goes the whole way, from a text to a result with its page.
Its parts work on matrices [contexts, vocabulary]:

- `SoftLabels`, `Supports`: what followed what; `describe`, `cross_entropy`, `unseen_mass`: the data's own numbers
- `sparse_component`, `in_support`, `out_of_support`: the finite part of the logits, and the subspaces
- `svm`, `certificate`, `estimate_cost`: the growing part, with a certified gap; `predict`: both parts and embeddings
- `regularisation_path`, `increment`, `largest_penalty`: the path as λ → 0; `narrow`: embeddings below full width
- `train_features`: gradient descent and Adam on unconstrained features
- `support_metrics` (SC1-SC6), `collapse_metrics` (NC1-NC5), `gram_cosine`, `pattern_similarity`: models against it
- `support_spectrum`: the proxy at corpus scale; `axes`, `analogy`: word geometry
- `KSubsets`, `all_subsets`, `random_labels`, `StoryGrammar`: data with known answers
- `threshold_sweep`, `bootstrap`: error bars
"""

from __future__ import annotations

from headscan.ntp.certificate import CentredCertificate, certificate
from headscan.ntp.closed_forms import KSubsets, all_subsets
from headscan.ntp.collapse_metrics import CollapseMetrics, collapse_metrics
from headscan.ntp.entropy import cross_entropy, describe, unseen_mass, zipf_exponent
from headscan.ntp.features import FeatureRun, train_features
from headscan.ntp.labels import SoftLabels
from headscan.ntp.low_width import LowWidth, narrow
from headscan.ntp.path import PathPoint, increment, largest_penalty, regularisation_path, regularised
from headscan.ntp.predicting import run
from headscan.ntp.prediction import Prediction, predict
from headscan.ntp.proxy import SupportSpectrum, support_spectrum
from headscan.ntp.result import NtpResult
from headscan.ntp.semantics import analogy, axes, early_spectrum, neighbours
from headscan.ntp.similarity import cosine, gram_cosine, pattern_similarity
from headscan.ntp.subspace import in_support, in_support_dimension, out_of_support, sparse_component
from headscan.ntp.support_metrics import Embeddings, SupportMetrics, collapse, support_metrics
from headscan.ntp.supports import Supports
from headscan.ntp.svm import SvmSolution, estimate_cost, svm
from headscan.ntp.synthetic import StoryGrammar, random_labels
from headscan.ntp.uncertainty import bootstrap, threshold_sweep

__all__ = [
    "CentredCertificate",
    "CollapseMetrics",
    "Embeddings",
    "FeatureRun",
    "KSubsets",
    "LowWidth",
    "NtpResult",
    "PathPoint",
    "Prediction",
    "SoftLabels",
    "StoryGrammar",
    "SupportMetrics",
    "SupportSpectrum",
    "Supports",
    "SvmSolution",
    "all_subsets",
    "analogy",
    "axes",
    "bootstrap",
    "certificate",
    "collapse",
    "collapse_metrics",
    "cosine",
    "cross_entropy",
    "describe",
    "early_spectrum",
    "estimate_cost",
    "gram_cosine",
    "in_support",
    "in_support_dimension",
    "increment",
    "largest_penalty",
    "narrow",
    "neighbours",
    "out_of_support",
    "pattern_similarity",
    "predict",
    "random_labels",
    "regularisation_path",
    "regularised",
    "run",
    "sparse_component",
    "support_metrics",
    "support_spectrum",
    "svm",
    "threshold_sweep",
    "train_features",
    "unseen_mass",
    "zipf_exponent",
]
