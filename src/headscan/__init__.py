"""headscan: a CAT scanner for language models.

It answers four questions about any Hugging Face language model: what *shape* its representations
have, what *caused* it, what of the input is *still in them*, and what *helps*. Each question
has a package of its own; the names below are those that most programs need.

>>> import headscan
>>> result = headscan.scan("gpt-vanilla", "stories", max_tokens=640, context=64)
>>> result.site("block.0")["tokens"]
640
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from headscan import _interrupt  # noqa: F401 (first, as what follows takes a tenth of a second)
from headscan.report import present
from headscan.run.errors import BadInput
from headscan.run.kinds import KINDS
from headscan.run.result import Result

if TYPE_CHECKING:
    from headscan import flow, ntp, states, training, weights
    from headscan.attribution import attribute
    from headscan.comparison import compare
    from headscan.diagnosis import checkup
    from headscan.flow import channel
    from headscan.inversion import invert
    from headscan.leaks import privacy
    from headscan.measures.cone import average_cosine, top_direction_share
    from headscan.measures.norms import mean_norm, mean_vector_norm
    from headscan.measures.spectrum import (
        effective_rank,
        isoscore,
        participation_ratio,
        singular_values,
    )
    from headscan.model.available import available_models, specimens
    from headscan.model.lens import Lens
    from headscan.model.slicing import Slice
    from headscan.remedies.decone import decone
    from headscan.remedies.run import remedy
    from headscan.scanner import scan
    from headscan.training import recover, train

__version__ = "0.3.0.dev0"

# Loaded when first asked for: `import headscan` and `headscan --version` need no library that
# computes.
_HOMES = {
    "attribute": "attribution",
    "available_models": "model.available",
    "average_cosine": "measures",
    "channel": "flow",
    "checkup": "diagnosis",
    "compare": "comparison",
    "decone": "remedies.decone",
    "effective_rank": "measures",
    "flow": "",
    "invert": "inversion",
    "isoscore": "measures",
    "Lens": "model",
    "mean_norm": "measures",
    "mean_vector_norm": "measures",
    "ntp": "",
    "participation_ratio": "measures",
    "privacy": "leaks",
    "recover": "training",
    "remedy": "remedies.run",
    "Result": "run",
    "scan": "scanner",
    "singular_values": "measures",
    "Slice": "model.slicing",
    "specimens": "model",
    "states": "",
    "top_direction_share": "measures",
    "train": "training",
    "training": "",
    "weights": "",
}
# The module of each kind of result; plug-ins name theirs as entry points of this group.
_KINDS = {
    "attribute": "attribution",
    "changes": "comparison",
    "channel": "flow",
    "checkup": "diagnosis",
    "compare": "comparison",
    "damage": "comparison",
    "flow": "flow",
    "invert": "inversion",
    "ntp": "ntp",
    "privacy": "leaks",
    "recover": "training.result",
    "remedy": "remedies.result",
    "scan": "scanner",
    "states": "states",
    "train": "training.result",
    "weights": "weights",
}
# The modules that declare the kinds of findings.
_FINDING_KINDS = (
    "headscan.scanner.kinds",
    "headscan.comparison.kinds",
    "headscan.ntp.kinds",
    "headscan.flow.kinds",
    "headscan.attribution.kinds",
    "headscan.leaks.kinds",
    "headscan.weights.run",
    "headscan.remedies.kinds",
    "headscan.training.monitor.kinds",
)
RESULTS = "headscan.results"

__all__ = [
    "BadInput",
    "Lens",
    "Result",
    "Slice",
    "__version__",
    "attribute",
    "available_models",
    "average_cosine",
    "channel",
    "checkup",
    "compare",
    "decone",
    "effective_rank",
    "flow",
    "invert",
    "isoscore",
    "load",
    "mean_norm",
    "mean_vector_norm",
    "ntp",
    "participation_ratio",
    "privacy",
    "recover",
    "remedy",
    "scan",
    "singular_values",
    "specimens",
    "states",
    "top_direction_share",
    "train",
    "training",
    "weights",
]


def load(folder: str | os.PathLike[str]) -> Result:
    """Any saved result from its folder; BadInput where there is none, or one of a version that
    cannot be read.
    """
    from importlib.metadata import entry_points

    from headscan.run.result import read_document

    document, arrays = read_document(folder)
    kind = document["kind"]
    if kind in _KINDS:
        import_module(f"headscan.{_KINDS[kind]}")
    for entry in entry_points(group=RESULTS, name=str(kind)):
        entry.load()
    if kind not in Result.kinds:
        raise BadInput(f"{folder} holds a result of an unknown kind: {kind!r}.")
    return Result.kinds[kind].of_document(document, arrays)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOMES[name]
    if not home:
        return import_module(f"headscan.{name}")
    return getattr(import_module(f"headscan.{home}"), name)


def __dir__() -> list[str]:
    return __all__


KINDS.homes = _FINDING_KINDS
Result.presenter = present
