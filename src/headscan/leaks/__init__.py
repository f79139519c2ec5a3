"""What a release gives away of a text: attacks, and bits between proved bounds.

- `privacy`: the verb; `RELEASES`: what may leak (states, cache, logits, embedding, gradient); `DEFENCES`
- `headscan.leaks.bounds`: the bounds themselves, on points and probabilities
- `cache_slice`, `Mapped`, `read_format`: caches, rounded releases, number formats, as slices that `headscan.inversion` inverts
- `states_from_logits`: logits, log-probabilities and some tokens' of them, turned back into states
- `applied`, `ChangedCache`: a defence at work in a model
"""

from __future__ import annotations

from headscan.leaks.applying import ChangedCache, applied
from headscan.leaks.defence import DEFENCES
from headscan.leaks.privacy import privacy
from headscan.leaks.release import RELEASES
from headscan.leaks.releases.logits import states_from_logits
from headscan.leaks.result import PrivacyResult
from headscan.leaks.rounding import NumberFormat, read_format
from headscan.model.slicing.cache import CacheSlice, cache_slice
from headscan.model.slicing.mapped import Mapped

__all__ = [
    "DEFENCES", "RELEASES", "CacheSlice", "ChangedCache", "Mapped", "NumberFormat", "PrivacyResult", "applied", "cache_slice",
    "privacy", "read_format", "states_from_logits",
]  # fmt: skip
