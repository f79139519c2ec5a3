"""Cures after the fact: maps that make a cloud rounder, fitted in one pass, judged on retrieval,
exported.

`run` is the verb (`headscan.remedy`), `REMEDIES` what there is, `RemedyTransformer` the same for
scikit-learn.
"""

from headscan.remedies.remedy import REMEDIES, Remedy, RemedyMethod, remedies

__all__ = ["REMEDIES", "Remedy", "RemedyMethod", "remedies"]


def __dir__() -> list[str]:
    return __all__
