"""Slices of models: which part is run and which part of its output is looked at, from a value to a
thing that runs.
"""

from headscan.model.slicing.prefix import Prefix, can_cache
from headscan.model.slicing.sliced_model import Slice, SlicedModel

__all__ = ["Prefix", "Slice", "SlicedModel", "can_cache"]
