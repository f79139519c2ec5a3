"""headscan: a CAT scanner for language models.

It answers four questions about any Hugging Face language model: what *shape* its representations have, what *caused*
it, what of the input is *still in them*, and what the *cure* is. Each question has a package of its own; the names
below are the ones most programs need.

>>> import headscan
>>> result = headscan.scan("gpt-vanilla", "stories", max_tokens=640, context=64)
>>> result.site("block.0")["tokens"]
640
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from headscan.report.present import Report
from headscan.run.errors import BadInput
from headscan.run.presenter import present_with

if TYPE_CHECKING:
    from headscan_lab.evaluation.result import EvaluationResult
    from headscan_lab.ledger.page import ledger_page
    from headscan_lab.ledger.run import ReproduceResult, all_claims, reproduce, wanted_claims
    from headscan_lab.ledger.stand_ins import check_original
    from headscan_lab.tournament.table import TournamentResult

    from headscan import flow, ntp, states, training
    from headscan.attribution import AttributeResult, attribute
    from headscan.comparison.result import CompareResult
    from headscan.comparison.run import compare, estimate_compare
    from headscan.diagnosis import CheckupResult, checkup
    from headscan.flow import ChannelResult, FlowResult
    from headscan.inversion import InvertResult, invert
    from headscan.leaks import PrivacyResult, privacy
    from headscan.measures.cone import average_cosine, top_direction_share
    from headscan.measures.norms import mean_norm, mean_vector_norm
    from headscan.measures.spectrum import effective_rank, isoscore, participation_ratio, singular_values
    from headscan.model.lens import Lens
    from headscan.model.slicing import Slice
    from headscan.model.source import available_models, specimens
    from headscan.ntp import NtpResult
    from headscan.remedies.decone import decone
    from headscan.remedies.result import RemedyResult
    from headscan.remedies.run import estimate_remedy, remedy
    from headscan.report.kit.terminal import check_kaleido
    from headscan.run.result import Result
    from headscan.scanner.result import ScanResult
    from headscan.scanner.run import scan
    from headscan.scanner.settings import estimate_scan
    from headscan.states.estimate import estimate_states
    from headscan.states.writing import StatesResult
    from headscan.training import RecoverResult, TrainResult, train

__version__ = "0.3.0.dev0"

# Loaded when first asked for: `import headscan` and `headscan --version` need no library that computes.
_HOMES = {
    "headscan.attribution": ("AttributeResult", "attribute"),
    "headscan_lab.ledger.run": ("ReproduceResult", "all_claims", "reproduce", "wanted_claims"),
    "headscan_lab.ledger.page": ("ledger_page",),
    "headscan_lab.ledger.stand_ins": ("check_original",),
    "headscan.diagnosis": ("CheckupResult", "checkup"),
    "headscan.flow": ("ChannelResult", "FlowResult"),
    "headscan.measures": (
        "average_cosine", "effective_rank", "isoscore", "mean_norm", "mean_vector_norm", "participation_ratio",
        "singular_values", "top_direction_share",
    ),
    "headscan.scanner": ("ScanResult", "scan"),
    "headscan.comparison": ("CompareResult", "compare"),
    "headscan.comparison.run": ("estimate_compare",),
    "headscan.scanner.settings": ("estimate_scan",),
    "headscan.remedies.result": ("RemedyResult",),
    "headscan.remedies.run": ("estimate_remedy", "remedy"),
    "headscan.inversion": ("InvertResult", "invert"),
    "headscan.leaks": ("PrivacyResult", "privacy"),
    "headscan.model": ("Lens", "specimens"),
    "headscan.model.source": ("available_models",),
    "headscan.model.slicing": ("Slice",),
    "headscan.ntp": ("NtpResult",),
    "headscan.remedies.decone": ("decone",),
    "headscan.report.kit.terminal": ("check_kaleido",),
    "headscan.run": ("Result",),
    "headscan.states": ("StatesResult",),
    "headscan.states.estimate": ("estimate_states",),
    "headscan.training": ("RecoverResult", "TrainResult", "train"),
    "headscan_lab.evaluation.result": ("EvaluationResult",),
    "headscan_lab.tournament.table": ("TournamentResult",),
}  # fmt: skip
_PLACES = {name: home for home, names in _HOMES.items() for name in names}
_PACKAGES = ("flow", "ntp", "states", "training")

__all__ = [
    "AttributeResult", "BadInput", "ChannelResult", "CheckupResult", "CompareResult", "EvaluationResult", "FlowResult",
    "InvertResult", "Lens", "NtpResult", "PrivacyResult", "RecoverResult", "RemedyResult", "ReproduceResult", "Result",
    "ScanResult", "Slice", "StatesResult", "TournamentResult", "TrainResult", "__version__", "all_claims", "attribute",
    "available_models", "average_cosine", "check_kaleido", "check_original", "checkup", "compare", "decone", "effective_rank",
    "estimate_compare", "estimate_remedy", "estimate_scan", "estimate_states", "flow",
    "invert", "isoscore", "ledger_page", "load", "mean_norm", "mean_vector_norm", "ntp",
    "participation_ratio", "privacy", "remedy", "reproduce", "scan", "singular_values", "specimens", "states",
    "top_direction_share", "train", "training", "wanted_claims",
]  # fmt: skip


def load(folder: str | os.PathLike[str]) -> Result:
    """Any saved result from its folder; BadInput where there is none, or one of a version that cannot be read."""
    from headscan.run.result import Result, read_document

    document, arrays = read_document(folder)
    for name in (one for one in _PLACES if one.endswith("Result")):  # a kind is known once its class is imported
        if document["kind"] in Result.kinds:
            break
        __getattr__(name)
    if document["kind"] not in Result.kinds:
        raise BadInput(f"{folder} holds a result of an unknown kind: {document['kind']!r}.")
    return Result.kinds[document["kind"]].of_document(document, arrays)


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"headscan.{name}")
    if name not in _PLACES:
        raise AttributeError(f"module 'headscan' has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)


present_with(Report())
