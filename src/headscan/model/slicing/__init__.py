"""Slices of models: the part of a model that is run, and the part of its output that is seen."""

from headscan.model.slicing.prefix import Prefix, can_cache
from headscan.model.slicing.sliced_model import Slice, SlicedModel

__all__ = ["Prefix", "Slice", "SlicedModel", "can_cache"]
