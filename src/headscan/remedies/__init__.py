"""Cures after the fact: affine maps that make a cloud rounder, fitted on its sums, exported as ordinary modules."""

from headscan.remedies.remedy import REMEDIES, Remedy, RemedyMethod, remedies

__all__ = ["REMEDIES", "Remedy", "RemedyMethod", "remedies"]
