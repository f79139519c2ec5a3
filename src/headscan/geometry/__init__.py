"""What shape do the representations have? Measures from finished statistics, and the scan that brings them together."""

from headscan.geometry.attention import attention_drift, biased_input, watch_heads
from headscan.geometry.axis import axis, axis_cosine
from headscan.geometry.choose import choose, ordered_measures, ordered_probes
from headscan.geometry.collapse import collapse, nearest_mean_agreement
from headscan.geometry.dimension import gride, intrinsic_dimension, mle, twonn
from headscan.geometry.explained import Field, MeasureWords, ProbeWords
from headscan.geometry.frequency import direction_correlations, frequency_bins
from headscan.geometry.gradient import push_pull_bins
from headscan.geometry.head import head_spectrum, ngram_matrix, spectrum_of_sparse, train_low_rank_head, w_error
from headscan.geometry.losses import cosine_regulariser, isoscore_loss, isoscore_star
from headscan.geometry.measure import MEASURES, Measure, measure
from headscan.geometry.measures.average_cosine import average_cosine
from headscan.geometry.measures.cone_angle import cone_angle
from headscan.geometry.measures.drift import drift
from headscan.geometry.measures.effective_rank import effective_rank
from headscan.geometry.measures.isoscore import isoscore, isoscore_of_rows
from headscan.geometry.measures.mean_norm import mean_norm
from headscan.geometry.measures.mean_vector_norm import mean_vector_norm
from headscan.geometry.measures.participation_ratio import participation_ratio
from headscan.geometry.measures.rankme import rankme
from headscan.geometry.measures.singular_entropy import singular_entropy
from headscan.geometry.measures.stable_rank import stable_rank
from headscan.geometry.measures.top_direction_share import top_direction_share
from headscan.geometry.negative import NearestPoint, nearest_point
from headscan.geometry.neighbours import distinct_rows, neighbour_distances
from headscan.geometry.partition import log_partition, partition_isotropy
from headscan.geometry.probe import PROBES, Probe
from headscan.geometry.result import ScanResult
from headscan.geometry.rogue import agreement_without, contributions, rogue, rogue_dimensions
from headscan.geometry.scan import scan
from headscan.geometry.sentences import (
    aligned,
    dropout_alignment,
    pair_alignment,
    read_sts,
    sentence_states,
    sts_spearman,
)
from headscan.geometry.spectrum import singular_values
from headscan.geometry.uniformity import alignment, uniformity, uniformity_floor
from headscan.geometry.words import contexts, maximum_explainable_variance, self_similarity, words
from headscan.geometry.zipf import heaps, predict_table, vocabulary_growth, zipf_mandelbrot
from headscan.statistics import Cloud

__all__ = [
    "MEASURES", "PROBES", "Cloud", "Field", "Measure", "MeasureWords", "NearestPoint", "Probe",
    "ProbeWords", "ScanResult", "agreement_without", "aligned", "alignment", "attention_drift", "average_cosine",
    "axis", "axis_cosine", "biased_input", "choose", "collapse", "cone_angle", "contexts", "contributions",
    "cosine_regulariser", "direction_correlations", "distinct_rows", "drift", "dropout_alignment", "effective_rank",
    "frequency_bins", "gride", "head_spectrum", "heaps", "intrinsic_dimension", "isoscore", "isoscore_loss",
    "isoscore_of_rows", "isoscore_star", "log_partition", "maximum_explainable_variance", "mean_norm",
    "mean_vector_norm", "measure", "mle", "nearest_mean_agreement", "nearest_point", "neighbour_distances",
    "ngram_matrix", "ordered_measures", "ordered_probes", "pair_alignment", "participation_ratio",
    "partition_isotropy", "predict_table", "push_pull_bins", "rankme", "read_sts", "rogue", "rogue_dimensions",
    "scan", "self_similarity", "sentence_states", "singular_entropy", "singular_values", "spectrum_of_sparse",
    "stable_rank", "sts_spearman", "top_direction_share", "train_low_rank_head", "twonn", "uniformity",
    "uniformity_floor", "vocabulary_growth", "w_error", "watch_heads", "words", "zipf_mandelbrot",
]  # fmt: skip
