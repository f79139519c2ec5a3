"""Loading: from an embedded name, a folder or a hub id to a Lens. (The body follows in the next commit.)"""

from __future__ import annotations

import copy
from typing import Any

import torch

__all__ = ["fresh_model"]


def fresh_model(model: Any, seed: int) -> Any:
    """A model of the same class, configuration, precision and device with fresh weights drawn from `seed`."""
    config = copy.deepcopy(model.config)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        fresh = type(model)._from_config(config, dtype=model.dtype)
    return fresh.to(model.device).eval()
