"""The cure: language models trained without a prediction head, and masked mixers, beside the usual way."""

from __future__ import annotations

from headscan.training.objectives import *  # noqa: F403
from headscan.training.objectives import __all__ as __all__
