"""Slices of models: which part is run and which part of its output is looked at, from a value to a thing that runs."""

from __future__ import annotations

from headscan.model.slicing.leak import leak_check
from headscan.model.slicing.prefix import Prefix, can_cache
from headscan.model.slicing.slice import Slice
from headscan.model.slicing.sliced_model import SlicedModel

__all__ = ["Prefix", "Slice", "SlicedModel", "can_cache", "leak_check"]
