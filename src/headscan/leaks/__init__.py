"""What a release gives away of a text: attacks, and bits between proved bounds.

- `privacy`: the verb; `CHANNELS`: what may leak (states, cache, logits, embedding, gradient);
  `MECHANISMS`: how it is protected; `TESTS`: attacks, margins, membership beside the bits;
  `read_policy`: limits that a release is held to
- `headscan.leaks.bounds`: the bounds themselves, on points and probabilities
- `cache_slice`, `Mapped`, `read_format`: caches, rounded releases, number formats, as slices that
  `headscan.inversion` inverts
- `applied`, `ChangedCache`, `working`: a mechanism at work in a model
"""

from typing import Any

from headscan.leaks.mechanisms import (
    MECHANISMS,
    ChangedCache,
    NumberFormat,
    applied,
    read_format,
    working,
)
from headscan.leaks.policy import Policy, read_policy
from headscan.leaks.result import PrivacyResult
from headscan.leaks.run import CHANNELS, TESTS, LeakTest, privacy
from headscan.model.slicing.cache_slice import CacheSlice, cache_slice
from headscan.model.slicing.mapped import Mapped
from headscan.run.errors import renamed

__all__ = [
    "CHANNELS",
    "MECHANISMS",
    "TESTS",
    "CacheSlice",
    "ChangedCache",
    "LeakTest",
    "Mapped",
    "NumberFormat",
    "Policy",
    "PrivacyResult",
    "applied",
    "cache_slice",
    "privacy",
    "read_format",
    "read_policy",
    "working",
]

_RENAMED = {"DEFENCES": "headscan.leaks:MECHANISMS", "RELEASES": "headscan.leaks:CHANNELS"}


def __getattr__(name: str) -> Any:
    return renamed(__name__, name, _RENAMED)


def __dir__() -> list[str]:
    return __all__
