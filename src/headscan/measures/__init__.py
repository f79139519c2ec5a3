"""What shape do the representations have? Measures of clouds of vectors and probes of models, a family a file."""

from headscan.measures.attention import attention_drift, biased_input, watch_heads
from headscan.measures.collapse import collapse, nearest_mean_agreement
from headscan.measures.cone import average_cosine, axis, axis_cosine, cone_angle, drift, top_direction_share
from headscan.measures.dimension import distinct_rows, gride, intrinsic_dimension, mle, neighbour_distances, twonn
from headscan.measures.entropy import rankme, singular_entropy
from headscan.measures.frequency import direction_correlations, frequency_bins, log_partition, partition_isotropy
from headscan.measures.gradient import push_pull_bins
from headscan.measures.head import head_spectrum, ngram_matrix, spectrum_of_sparse, train_low_rank_head, w_error
from headscan.measures.measure import MEASURES, Field, Measure, MeasureWords, ProbeWords, measure
from headscan.measures.negative import NearestPoint, nearest_point
from headscan.measures.norms import mean_norm, mean_vector_norm
from headscan.measures.outliers import agreement_without, contributions, rogue, rogue_dimensions
from headscan.measures.pairs import aligned, dropout_alignment, pair_alignment, read_sts, sentence_states, sts_spearman
from headscan.measures.probe import PROBES, Probe
from headscan.measures.spectrum import (
    effective_rank,
    isoscore,
    isoscore_of_rows,
    participation_ratio,
    singular_values,
    stable_rank,
)
from headscan.measures.sphere import alignment, uniformity, uniformity_floor
from headscan.measures.words import contexts, maximum_explainable_variance, self_similarity, words
from headscan.measures.zipf import heaps, predict_table, vocabulary_growth, zipf_mandelbrot
from headscan.run.vocabulary import Term
from headscan.statistics import Cloud

__all__ = [
    "MEASURES", "PROBES", "Cloud", "Field", "Measure", "MeasureWords", "NearestPoint", "Probe",
    "ProbeWords", "Term", "agreement_without", "aligned", "alignment", "attention_drift", "average_cosine",
    "axis", "axis_cosine", "biased_input", "collapse", "cone_angle", "contexts", "contributions",
    "direction_correlations", "distinct_rows", "drift", "dropout_alignment", "effective_rank",
    "frequency_bins", "gride", "head_spectrum", "heaps", "intrinsic_dimension", "isoscore",
    "isoscore_of_rows", "log_partition", "maximum_explainable_variance", "mean_norm",
    "mean_vector_norm", "measure", "mle", "nearest_mean_agreement", "nearest_point", "neighbour_distances",
    "ngram_matrix", "pair_alignment", "participation_ratio",
    "partition_isotropy", "predict_table", "push_pull_bins", "rankme", "read_sts", "rogue", "rogue_dimensions",
    "self_similarity", "sentence_states", "singular_entropy", "singular_values", "spectrum_of_sparse",
    "stable_rank", "sts_spearman", "top_direction_share", "train_low_rank_head", "twonn", "uniformity",
    "uniformity_floor", "vocabulary_growth", "w_error", "watch_heads", "words", "zipf_mandelbrot",
]  # fmt: skip
