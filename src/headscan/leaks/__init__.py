"""Leakage of a text from what is released of it: attacks, and bits between proved bounds.

- `privacy`: the verb; `CHANNELS`: what may leak (states, cache, logits, embedding, gradient);
  `MECHANISMS`: how it is protected; `TESTS`: attacks, margins, membership beside the bits;
  `read_policy`: limits that a release is held to
- `headscan.leaks.bounds`: the bounds themselves, on points and probabilities
- `cache_slice`, `Mapped`, `read_format`: caches, rounded releases, number formats, as slices that
  `headscan.inversion` inverts
- `working`, `ChangedCache`: a defence at work in a model, with `Lens.patch`
"""

from headscan.leaks.defences import MECHANISMS, working
from headscan.leaks.exposure import ChangedCache
from headscan.leaks.number_formats import NumberFormat, read_format
from headscan.leaks.policy import Policy, read_policy
from headscan.leaks.registry import CHANNELS, TESTS, LeakTest
from headscan.leaks.result import PrivacyResult
from headscan.leaks.run import privacy
from headscan.model.slicing.cache_slice import CacheSlice, cache_slice
from headscan.model.slicing.mapped import Mapped

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
    "cache_slice",
    "privacy",
    "read_format",
    "read_policy",
    "working",
]


def __dir__() -> list[str]:
    return __all__
