"""Measures of clouds of vectors and probes of models: the shape of the representations, one
family a file.
"""

from headscan.measures.attention import attention_drift, watch_heads
from headscan.measures.cone import average_cosine, drift, top_direction_share
from headscan.measures.dimension import intrinsic_dimension, mle, neighbour_distances, twonn
from headscan.measures.entropy import rankme
from headscan.measures.head import head_spectrum, w_error
from headscan.measures.measure import MEASURES, Field, Measure, MeasureWords, ProbeWords, measure
from headscan.measures.norms import mean_norm, mean_vector_norm
from headscan.measures.outliers import agreement_without, contributions, rogue, rogue_dimensions
from headscan.measures.pairs import aligned, sentence_states
from headscan.measures.probe import PROBES, Probe
from headscan.measures.spectrum import (
    effective_rank,
    isoscore,
    participation_ratio,
    singular_values,
)
from headscan.measures.sphere import uniformity, uniformity_floor
from headscan.measures.words import contexts, maximum_explainable_variance, self_similarity, words
from headscan.run.vocabulary import Term
from headscan.statistics import Cloud

__all__ = [
    "MEASURES",
    "PROBES",
    "Cloud",
    "Field",
    "Measure",
    "MeasureWords",
    "Probe",
    "ProbeWords",
    "Term",
    "agreement_without",
    "aligned",
    "attention_drift",
    "average_cosine",
    "contexts",
    "contributions",
    "drift",
    "effective_rank",
    "head_spectrum",
    "intrinsic_dimension",
    "isoscore",
    "maximum_explainable_variance",
    "mean_norm",
    "mean_vector_norm",
    "measure",
    "mle",
    "neighbour_distances",
    "participation_ratio",
    "rankme",
    "rogue",
    "rogue_dimensions",
    "self_similarity",
    "sentence_states",
    "singular_values",
    "top_direction_share",
    "twonn",
    "uniformity",
    "uniformity_floor",
    "w_error",
    "watch_heads",
    "words",
]


def __dir__() -> list[str]:
    return __all__
