"""What caused the geometry: next-token prediction on sparse data, from counts to a certified
prediction.

`headscan.ntp.run(text, tokenizer=..., order=3)` goes the whole way, from a text to a result with
its page. Its parts work on matrices [contexts, vocabulary]:

- `SoftLabels`, `Supports`: what followed what; `describe`, `cross_entropy`, `unseen_mass`: the
  data's own numbers
- `sparse_component`, `in_support`, `out_of_support`: the finite part of the logits, and the
  subspaces
- `svm`, `certificate`, `estimate_cost`: the growing part, with a certified gap; `predict`: both
  parts and embeddings
- `support_metrics` (SC1-SC6), `gram_cosine`: models against it
- `support_spectrum`: the proxy at corpus scale; `axes`: word geometry
- `threshold_sweep`, `bootstrap`: error bars
"""

from headscan.ntp.entropy import bootstrap, cross_entropy, describe, threshold_sweep, unseen_mass
from headscan.ntp.labels import SoftLabels, Supports
from headscan.ntp.prediction import (
    Prediction,
    SupportSpectrum,
    axes,
    cosine,
    gram_cosine,
    predict,
    support_spectrum,
)
from headscan.ntp.result import NtpResult
from headscan.ntp.run import run
from headscan.ntp.subspace import in_support, out_of_support, sparse_component
from headscan.ntp.support_metrics import Embeddings, SupportMetrics, support_metrics
from headscan.ntp.svm import CentredCertificate, SvmSolution, certificate, estimate_cost, svm
from headscan.run.verbs import make_callable

__all__ = [
    "CentredCertificate",
    "Embeddings",
    "NtpResult",
    "Prediction",
    "SoftLabels",
    "SupportMetrics",
    "SupportSpectrum",
    "Supports",
    "SvmSolution",
    "axes",
    "bootstrap",
    "certificate",
    "cosine",
    "cross_entropy",
    "describe",
    "estimate_cost",
    "gram_cosine",
    "in_support",
    "out_of_support",
    "predict",
    "run",
    "sparse_component",
    "support_metrics",
    "support_spectrum",
    "svm",
    "threshold_sweep",
    "unseen_mass",
]


def __dir__() -> list[str]:
    return __all__


make_callable(__name__)
