"""Faults to be injected into healthy models: by a hook or in the weights, each with the code that
is to name it.

A rogue coordinate: one coordinate of all states from the middle block on gets 30 times the states'
rms. A cone: a constant vector of three times their norm is added. A collapsed layer: the middle
block's output is projected onto two directions around its mean. An untied scale: the head's weights
times 4. 4-bit damage: all matrices rounded to 16 levels in groups of 64, scaled by their largest.
An untrained head: its weights drawn anew. Deaf attention: every attention gives zero. Checkpoints
in the wrong order: the trained model, then one with noise in its weights.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from headscan.model import Lens
from headscan.model.recording import with_first_tensor
from headscan.model.sites import first_tensor

EXPECTED = {
    "none": (),
    "rogue coordinate": ("HS102",),
    "cone": ("HS101",),
    "collapsed layer": ("HS103",),
    "untied scale": ("HS202",),
    "4-bit damage": ("HS203",),
    "untrained head": ("HS201",),
    "deaf attention": ("HS303",),
    "shuffled checkpoints": ("HS204",),
}


def middle(lens: Lens) -> tuple[Any, Tensor]:
    """The middle block's module, and states that it gives [T, d]."""
    blocks = [site for site in lens.default_sites if site.rsplit(".", 1)[-1].isdigit()]
    site = blocks[len(blocks) // 2]
    ids = torch.arange(64)[None] % lens.vocabulary_size
    return lens.tap(site).module, lens.run(ids, sites=site)[site][0]


def change_output(module: nn.Module, change: Callable[[Tensor], Tensor]) -> None:
    """Replace the module's first output by `change(output)` for as long as the module lives."""

    def hook(_module: nn.Module, _args: Any, output: Any) -> Any:
        return with_first_tensor(output, change(_tensor_of(output)))

    module.register_forward_hook(hook)


def _tensor_of(output: Any) -> Tensor:
    tensor = first_tensor(output)
    assert tensor is not None
    return tensor


def rogue(lens: Lens, dose: float = 30) -> None:
    module, states = middle(lens)
    move = torch.zeros(states.shape[1])
    move[states.shape[1] // 3] = dose * states.square().mean().sqrt()
    change_output(module, lambda x: x + move)


def cone(lens: Lens, dose: float = 3) -> None:
    module, states = middle(lens)
    direction = torch.randn(states.shape[1])
    constant = dose * states.norm(dim=1).mean() * direction / direction.norm()
    change_output(module, lambda x: x + constant)


def collapsed(lens: Lens) -> None:
    module, states = middle(lens)
    mean = states.mean(0)
    basis = torch.linalg.svd(states - mean, full_matrices=False).Vh[:2]
    change_output(module, lambda x: mean + (x - mean) @ basis.T @ basis)


def head_of(lens: Lens) -> Any:
    """The output layer with weights of its own."""
    head = lens.model.get_output_embeddings()
    head.weight = nn.Parameter(head.weight.detach().clone())
    return head


def scaled(lens: Lens, dose: float = 4) -> None:
    head_of(lens).weight.data *= dose


def untrained(lens: Lens) -> None:
    weight = head_of(lens).weight
    weight.data = torch.randn_like(weight) * weight.std()


def rounded(lens: Lens) -> None:
    for weight in lens.model.parameters():
        if weight.ndim == 2 and weight.shape[1] % 64 == 0:
            groups = weight.data.reshape(len(weight), -1, 64)
            step = groups.abs().amax(-1, keepdim=True).clamp_min(1e-12) / 7.5
            levels = (groups / step - 0.5).round().clamp(-8, 7) + 0.5
            weight.data = levels.mul(step).reshape(weight.shape)


def deaf(lens: Lens) -> None:
    for site in lens.sites:
        if site.startswith("block.") and site.endswith(".attention"):
            change_output(lens.tap(site).module, lambda x: 0 * x)


def noisy(lens: Lens) -> None:
    for weight in lens.model.parameters():
        if weight.ndim == 2:
            weight.data = weight.data + 0.5 * weight.std() * torch.randn_like(weight)


FAULTS: dict[str, Callable[..., None]] = {
    "none": lambda _lens: None,
    "rogue coordinate": rogue,
    "cone": cone,
    "collapsed layer": collapsed,
    "untied scale": scaled,
    "4-bit damage": rounded,
    "untrained head": untrained,
    "deaf attention": deaf,
}


def sick(healthy: Lens, fault: Callable[..., None], name: str, *dose: float, seed: int = 0) -> Lens:
    """A copy of a healthy model with the fault in it; the same whenever asked with this seed."""
    torch.manual_seed(seed)
    damaged = Lens(copy.deepcopy(healthy.model), healthy.tokenizer, name=name)
    with torch.no_grad():
        fault(damaged, *dose)
    return damaged
