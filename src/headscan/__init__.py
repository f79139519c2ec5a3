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

from typing import TYPE_CHECKING, Any

from headscan.errors import BadInput
from headscan.report.present import Report
from headscan.run.presenter import present_with

if TYPE_CHECKING:
    from headscan import flow, ntp, training
    from headscan.attribution import AttributeResult, attribute
    from headscan.claims.ledger import ReproduceResult, all_claims, ledger_page, reproduce
    from headscan.flow.result import ChannelResult, FlowResult
    from headscan.geometry import (
        average_cosine,
        effective_rank,
        isoscore,
        mean_norm,
        mean_vector_norm,
        participation_ratio,
        singular_values,
        top_direction_share,
    )
    from headscan.geometry.result import ScanResult
    from headscan.geometry.scan import scan
    from headscan.inversion import InvertResult, PrivacyResult, invert, privacy
    from headscan.model.catalogue import available_models
    from headscan.model.embedded import specimens
    from headscan.model.lens import Lens
    from headscan.model.slicing import Slice
    from headscan.results import Result, load
    from headscan.training import train

__version__ = "0.1.0"

__all__ = [
    "AttributeResult",
    "BadInput",
    "ChannelResult",
    "FlowResult",
    "InvertResult",
    "Lens",
    "PrivacyResult",
    "ReproduceResult",
    "Result",
    "ScanResult",
    "Slice",
    "__version__",
    "all_claims",
    "attribute",
    "available_models",
    "average_cosine",
    "effective_rank",
    "flow",
    "invert",
    "isoscore",
    "ledger_page",
    "load",
    "mean_norm",
    "mean_vector_norm",
    "ntp",
    "participation_ratio",
    "privacy",
    "reproduce",
    "scan",
    "singular_values",
    "specimens",
    "top_direction_share",
    "train",
    "training",
]

# Loaded when first asked for: `import headscan` and `headscan --version` need neither torch nor transformers.
_HOMES = {
    "Lens": "headscan.model",
    "specimens": "headscan.model",
    "available_models": "headscan.model.catalogue",
    "AttributeResult": "headscan.attribution",
    "attribute": "headscan.attribution",
    "ChannelResult": "headscan.flow",
    "FlowResult": "headscan.flow",
    "ScanResult": "headscan.geometry",
    "scan": "headscan.geometry",
    "ReproduceResult": "headscan.claims.ledger",
    "all_claims": "headscan.claims.ledger",
    "ledger_page": "headscan.claims.ledger",
    "reproduce": "headscan.claims.ledger",
    "Slice": "headscan.model.slicing",
    "InvertResult": "headscan.inversion",
    "PrivacyResult": "headscan.inversion",
    "invert": "headscan.inversion",
    "privacy": "headscan.inversion",
    "train": "headscan.training",
    "Result": "headscan.results",
    "load": "headscan.results",
}
_HOMES |= dict.fromkeys(
    (
        "average_cosine", "effective_rank", "isoscore", "mean_norm", "mean_vector_norm", "participation_ratio",
        "singular_values", "top_direction_share",
    ),
    "headscan.geometry",
)  # fmt: skip


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in ("flow", "ntp", "training"):  # packages, which are never called; the first two have a verb, `run`
        return import_module(f"headscan.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'headscan' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


present_with(Report())
