"""What a release gives away of a text: attacks, and bits between proved bounds.

- `privacy`: the verb; `CHANNELS`: what may leak (states, cache, logits, embedding, gradient);
  `MECHANISMS`: how it is protected; `TESTS`: attacks, margins, membership beside the bits;
  `read_policy`: limits that a release is held to
- `headscan.leaks.bounds`: the bounds themselves, on points and probabilities
- `cache_slice`, `Mapped`, `read_format`: caches, rounded releases, number formats, as slices that
  `headscan.inversion` inverts
- `applied`, `ChangedCache`, `working`: a mechanism at work in a model
"""

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
from headscan.model.slicing.prefix import CacheSlice, Mapped, cache_slice

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


def __dir__() -> list[str]:
    return __all__
