"""Faults injected into healthy models are named by their codes; the same models without them raise no alarm that is not known.

    python benchmarks/the_checkup_names_injected_faults.py [--models gpt-vanilla,FOLDER,...] [--text stories]

Each fault is put into a live model by a hook or by its weights, then `headscan checkup --budget 2m` examines it. The table says
which codes were found beyond those of the model without a fault. The faults: a rogue coordinate (one coordinate of all states
from the middle block on gets 30 times the states' rms), a cone (a constant vector of three times their norm is added), a
collapsed layer (the middle block's output is projected onto two directions around its mean), an untied scale (the head's
weights times 4), 4-bit damage (all matrices rounded to 16 levels in groups of 64, scaled by their largest), an untrained head
(its weights drawn anew), checkpoints in the wrong order (the trained model, then one with noise in its weights).
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable
from typing import Any

import torch
from _table import show
from torch import Tensor, nn

import headscan
from headscan.model import Lens

EXPECTED = {
    "none": (), "rogue coordinate": ("HS102",), "cone": ("HS101",), "collapsed layer": ("HS103",), "untied scale": ("HS202",),
    "4-bit damage": ("HS203",), "untrained head": ("HS201",), "shuffled checkpoints": ("HS204",),
}  # fmt: skip


def middle(lens: Lens) -> tuple[Any, Tensor]:
    """The middle block's module, and states that it gives [T, d]."""
    blocks = [site for site in lens.default_sites if site.rsplit(".", 1)[-1].isdigit()]
    site = blocks[len(blocks) // 2]
    ids = torch.arange(64)[None] % lens.vocabulary_size
    return lens.tap(site).module, lens.run(ids, sites=site)[site][0]


def hooked(change: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    def hook(module: nn.Module, given: Any, output: Any) -> Any:
        return (change(output[0]), *output[1:]) if isinstance(output, tuple) else change(output)

    return hook


def rogue(lens: Lens) -> None:
    module, states = middle(lens)
    move = torch.zeros(states.shape[1])
    move[states.shape[1] // 3] = 30 * states.square().mean().sqrt()
    module.register_forward_hook(hooked(lambda x: x + move))


def cone(lens: Lens) -> None:
    module, states = middle(lens)
    direction = torch.randn(states.shape[1])
    module.register_forward_hook(hooked(lambda x: x + 3 * states.norm(dim=1).mean() * direction / direction.norm()))


def collapsed(lens: Lens) -> None:
    module, states = middle(lens)
    mean = states.mean(0)
    basis = torch.linalg.svd(states - mean, full_matrices=False).Vh[:2]
    module.register_forward_hook(hooked(lambda x: mean + (x - mean) @ basis.T @ basis))


def head_of(lens: Lens) -> nn.Module:
    """The output layer with weights of its own."""
    head: nn.Module = lens.model.get_output_embeddings()
    head.weight = nn.Parameter(head.weight.detach().clone())
    return head


def scaled(lens: Lens) -> None:
    head_of(lens).weight.data *= 4


def untrained(lens: Lens) -> None:
    weight = head_of(lens).weight
    weight.data = torch.randn_like(weight) * weight.std()


def rounded(lens: Lens) -> None:
    for weight in lens.model.parameters():
        if weight.ndim == 2 and weight.shape[1] % 64 == 0:
            groups = weight.data.reshape(len(weight), -1, 64)
            step = groups.abs().amax(-1, keepdim=True).clamp_min(1e-12) / 7.5
            weight.data = ((groups / step - 0.5).round().clamp(-8, 7) + 0.5).mul(step).reshape(weight.shape)


def noisy(lens: Lens) -> None:
    for weight in lens.model.parameters():
        if weight.ndim == 2:
            weight.data = weight.data + 0.5 * weight.std() * torch.randn_like(weight)


FAULTS: dict[str, Callable[[Lens], None]] = {
    "none": lambda lens: None, "rogue coordinate": rogue, "cone": cone, "collapsed layer": collapsed, "untied scale": scaled,
    "4-bit damage": rounded, "untrained head": untrained,
}  # fmt: skip


def sick(healthy: Lens, fault: Callable[[Lens], None], name: str) -> Lens:
    made = Lens(copy.deepcopy(healthy.model), healthy.tokenizer, name=name)
    with torch.no_grad():
        fault(made)
    return made


def codes(result: Any, which: int = -1) -> set[str]:
    return {one.code for one in result.examinations[which].observations if one.present}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="gpt-vanilla,gpt-headless")
    parser.add_argument("--text", default="stories")
    parser.add_argument("--tokens", type=int, default=2048)
    given = parser.parse_args()
    records = []
    for name in given.models.split(","):
        torch.manual_seed(0)
        healthy = Lens.load(name)
        own: set[str] = set()
        for fault, put in FAULTS.items():
            result = headscan.checkup(sick(healthy, put, fault), given.text, max_tokens=given.tokens, context=64)
            found = codes(result)
            own = found if fault == "none" else own
            records.append(record(healthy.name, fault, found, own))
        pair = [healthy, sick(healthy, noisy, "worse")]
        found = codes(headscan.checkup(pair, given.text, max_tokens=given.tokens, context=64, checkpoints=True))
        records.append(record(healthy.name, "shuffled checkpoints", found, own))
    show(records)


def record(model: str, fault: str, found: set[str], own: set[str]) -> dict[str, Any]:
    expected = set(EXPECTED[fault])
    return {
        "model": model, "fault": fault, "expected": ", ".join(sorted(expected)) or "-",
        "found": "yes" if expected <= found else "NO",
        "others, beyond the healthy model's": ", ".join(sorted(found - own - expected)) or "-",
        "of the healthy model": ", ".join(sorted(own)) or "-",
    }  # fmt: skip


if __name__ == "__main__":
    main()
