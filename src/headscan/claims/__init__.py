"""The ledger: claims of the literature as experiments that run, each with a verdict."""

from __future__ import annotations

from headscan.claims.claim import CLAIMS, OUTCOMES, Claim, Verdict, claim

__all__ = ["CLAIMS", "OUTCOMES", "Claim", "Verdict", "claim"]
