"""The self-test of a new Lens: every site must really fire, once a pass, with the shape it promises."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from headscan.model.record import Recorder
from headscan.model.tap import Tap

__all__ = ["evaluating", "verify_taps"]


def verify_taps(model: nn.Module, inputs: dict[str, Any], shape: tuple[int, int], taps: list[Tap]) -> dict[str, Tap]:
    """Run once with all taps in place; return them by name, in the order in which they fired.

    Taps whose tensor the model changes afterwards are marked `overwritten`.

    Raises:
        RuntimeError: a site did not fire exactly once or has another shape; a fault of headscan's.
    """
    live: dict[str, Tensor] = {}
    copies: dict[str, Tensor] = {}

    def keep(site: str, tensor: Tensor) -> None:
        if site in live:
            raise RuntimeError(f"The site {site} fired twice in one forward pass.")
        live[site] = tensor
        copies[site] = tensor.detach().clone()

    with torch.no_grad(), Recorder(taps, keep):
        model(**inputs)
    by_name = {tap.site: tap for tap in taps}
    for site, tap in by_name.items():
        if site not in live:
            raise RuntimeError(f"The site {site} ({tap.place}) did not fire in a forward pass.")
        if tuple(live[site].shape) != (*shape, tap.width):
            raise RuntimeError(f"The site {site} has shape {tuple(live[site].shape)}, not {(*shape, tap.width)}.")
    return {
        site: replace(by_name[site], overwritten=not torch.equal(live[site].nan_to_num(), copies[site].nan_to_num()))
        for site in live
    }


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model in evaluation mode (no dropout); afterwards each module is in the mode it was in."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True
